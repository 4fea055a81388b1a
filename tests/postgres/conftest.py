import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

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
async def new_store() -> AsyncIterator[Callable[..., Store]]:
    """Makes stores, of a URL; they are closed at the end."""
    made: list[Store] = []

    def make(url: str, password_file: str = "") -> Store:
        made.append(Store(url, clock=time.time, password_file=password_file))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()


@pytest.fixture
def open_stores(postgres: Cluster, database: str, new_store: Callable[..., Store]) -> Callable[..., Store]:
    """Makes stores on one database, as several daemons have."""
    return partial(new_store, postgres.url(database))


@pytest.fixture
def own_server() -> Iterator[Cluster]:
    """A server that a test may kill."""
    with running_cluster() as cluster:
        yield cluster
