"""A clock that jumps to the next deadline as soon as everybody waits: import the fixture where tests shall have it.

What would run in a worker thread runs in the loop's meanwhile: beside a thread that works, the clock must not jump.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from trio.testing import MockClock

from tests.simulation.stage import in_one_thread


@pytest.fixture
def anyio_backend() -> Iterator[tuple[str, dict[str, Any]]]:
    """trio, in simulated time."""
    with in_one_thread():
        yield "trio", {"clock": MockClock(autojump_threshold=0)}
