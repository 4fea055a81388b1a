from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from actors.store import Store
from tests.support.postgres import Cluster, running_cluster


@pytest.fixture
def database(postgres: Cluster) -> Iterator[str]:
    """Name of a database without a table."""
    name = postgres.create(empty=True)
    yield name
    postgres.drop(name)


@pytest.fixture
async def open_stores(postgres: Cluster, database: str) -> AsyncIterator[Callable[..., Store]]:
    """Makes stores on one database, as several daemons have; they are closed at the end."""
    made: list[Store] = []

    def make(**options: object) -> Store:
        made.append(Store(postgres.url(database), clock=lambda: 1000.0, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for store in made:
        await store.aclose()


@pytest.fixture
def own_server() -> Iterator[Cluster]:
    """A server that a test may kill."""
    with running_cluster() as cluster:
        yield cluster
