from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.store import Store


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 1000.0)
    await opened.open()
    yield opened
    await opened.aclose()
