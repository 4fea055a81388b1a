"""An experiencer on a store."""

from pathlib import Path

import pytest

from actors.store import Store
from tests.unit.actors.experience.made import World


@pytest.fixture
def anyio_backend() -> str:
    """Tasks take turns in one order, so that a round of probing is the same each time."""
    return "asyncio"


@pytest.fixture
async def world(store: Store, tmp_path: Path) -> World:
    world = World(store, tmp_path / "desk.json")
    await world.begin()
    return world
