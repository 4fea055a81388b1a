from collections.abc import AsyncIterator

import pytest

from actors.store import Store


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = Store(store_url, clock=lambda: 1000.0)
    await opened.open()
    yield opened
    await opened.aclose()
