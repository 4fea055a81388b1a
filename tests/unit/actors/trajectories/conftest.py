from collections.abc import AsyncIterator

import pytest

from actors.store import Store
from tests.unit.actors.trajectories.made import Bench


@pytest.fixture
async def bench(store_url: str) -> AsyncIterator[Bench]:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    made = Bench(store)
    await made.restart()
    yield made
    await store.aclose()
