"""Fixtures of the AppWorld suite; it needs AppWorld's environment (`make test-appworld`)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapters.environments.appworld import AppWorldEnvironment
from tests.appworld import rig


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An AppWorld root directory with four tasks of our own."""
    directory = tmp_path_factory.mktemp("appworld")
    rig.synthetic_tasks(directory)
    return directory


@pytest.fixture(scope="package")
def shared(root: Path) -> Iterator[Callable[[str], AppWorldEnvironment]]:
    """By backend, the environment that the tests share: importing AppWorld takes seconds, many on a busy machine."""
    made: dict[str, AppWorldEnvironment] = {}

    def by(backend: str) -> AppWorldEnvironment:
        if backend not in made:
            made[backend] = AppWorldEnvironment(root, python=rig.PYTHON, max_instances=3, max_steps=30)
        return made[backend]

    yield by
    for environment in made.values():
        environment.pool.close()
