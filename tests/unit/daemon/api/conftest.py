"""A control API over a fresh store."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from actors.store import Store
from tests.support.experience import Desk


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 1.0)
    await store.open()
    yield store
    await store.aclose()


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path)


@pytest.fixture
async def http(desk: Desk) -> AsyncIterator[httpx.AsyncClient]:
    async with desk.http() as http:
        yield http
