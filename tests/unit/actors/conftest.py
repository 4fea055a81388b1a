"""A store."""

from collections.abc import AsyncIterator

import pytest

from actors.store import Store


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    made = Store(store_url, clock=lambda: 1_000.0)
    await made.open()
    yield made
    await made.aclose()
