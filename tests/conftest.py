"""Fixtures of all suites."""

import pytest

pytest_plugins = ["tests.support.secrets"]


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on trio unless a module says otherwise."""
    return "trio"
