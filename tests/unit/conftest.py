"""Fixtures of all unit tests."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands set logs up for a process of their own; the next test wants to read them."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
