"""Fixtures of the BFCL suite; it needs bfcl-eval's environment (`make test-bfcl`)."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from adapters.environments.bfcl import BfclEnvironment

PYTHON = Path(__file__).parents[2] / ".venv-bfcl" / "bin" / "python"

if not PYTHON.is_file():
    pytest.exit("tests/bfcl needs bfcl-eval in an environment of its own: `make test-bfcl`", returncode=4)


@asynccontextmanager
async def _running(**options) -> AsyncIterator[BfclEnvironment]:
    environment = BfclEnvironment(PYTHON, **options)
    try:
        yield environment
    finally:
        await environment.aclose()


@pytest.fixture
def opened() -> Callable[..., AbstractAsyncContextManager[BfclEnvironment]]:
    """The environment, with any options; its workers are gone afterwards."""
    return _running


@pytest.fixture
async def bfcl(anyio_backend: str) -> AsyncIterator[BfclEnvironment]:
    """The environment with one worker."""
    async with _running(workers=1) as environment:
        yield environment
