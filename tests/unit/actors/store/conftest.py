from collections.abc import AsyncIterator

import pytest

from actors.store import Store


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = Store(store_url, clock=lambda: 1000.0)
    await opened.open()
    yield opened
    await opened.aclose()
