"""Fixtures: an engine, a tap before it, and a client of the tap."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.engine import Engine, running_engine
from tests.support.tapping import Rig, running_tap


@pytest.fixture
def anyio_backend() -> object:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with running_engine() as running:
        yield running


@pytest.fixture
async def rig(engine: Engine, tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_tap(tmp_path, engine.port, drain_seconds=3) as running:
        yield running


@pytest.fixture
async def http(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    async with rig.http() as client:
        yield client
