"""A store, and an experiencer on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.store import Store
from tests.unit.actors.experience.made import World


@pytest.fixture
def anyio_backend() -> str:
    """Tasks take turns in one order, so that a round of probing is the same each time."""
    return "asyncio"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
async def world(store: Store, tmp_path: Path) -> World:
    world = World(store, tmp_path / "desk.json")
    await world.begin()
    return world
