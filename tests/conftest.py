"""Fixtures of all suites.

EVOLVED_TEST_DATABASE=postgresql runs only the tests that use a store, and on a real PostgreSQL instead of SQLite:
`make test-postgres` sets it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.postgres import Cluster

pytest_plugins = ["tests.support.secret_scan", "tests.support.progress"]
with contextlib.suppress(ImportError):  # suites with an environment of their own may not have it
    import hypothesis

    hypothesis.settings.load_profile("ci")  # here as there: no deadline, the same examples every time, no database
ON_POSTGRES = os.environ.get("EVOLVED_TEST_DATABASE", "sqlite") == "postgresql"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL, run only the tests that use a store."""
    if ON_POSTGRES:
        own = Path(__file__).parent / "postgres"
        kept, gone = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            there = own in item.path.parents or "new_store_url" in getattr(item, "fixturenames", ())
            (kept if there else gone).append(item)
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on trio unless a module says otherwise."""
    return "trio"


@pytest.fixture(scope="session", autouse=True)
def _runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Taps with several engines share memory in it; in its place they would leave files in the machine's."""
    os.environ["RUNTIME_DIRECTORY"] = str(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Cluster]":
    """A real server, started for the first test that wants it."""
    # Suites with an environment of their own have no driver, and want none.
    from tests.support.postgres import running_cluster

    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def new_store_url(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Gives the URL of a new store each time that it is called."""
    if not ON_POSTGRES:
        numbers = iter(("evolved", *(f"evolved-{number}" for number in range(2, 100))))
        yield lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    names: list[str] = []

    def make() -> str:
        names.append(cluster.create())
        return cluster.url(names[-1])

    yield make
    for name in names:
        cluster.drop(name)


@pytest.fixture
def store_url(new_store_url: Callable[[], str]) -> str:
    """A store's URL: SQLite, or PostgreSQL if the suite runs on that."""
    return new_store_url()
