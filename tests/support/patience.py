"""How long tests wait. A deadline of a test only finds what hangs, so it is long, and longer on a slow machine."""

import inspect
import os
import time
from collections.abc import Callable
from typing import Any

SLOW = max(1.0, float(os.environ.get("EVOLVED_SLOW") or 1.0))
"""How many times slower than quiet this machine is now: `.ci/run` measures it and hands it over."""
_LEAST_SECONDS = 60.0


class Late(AssertionError):
    """What a test waited for did not come. The runner takes it for the machine's slowness first, and tries again."""


def within(seconds: float = _LEAST_SECONDS) -> float:
    """A deadline in seconds: `seconds` on a quiet machine, never under a minute, longer on a slow one."""
    return max(_LEAST_SECONDS, seconds) * SLOW


async def until(condition: Callable[[], Any], what: str, seconds: float = _LEAST_SECONDS, every: float = 0.02) -> float:
    """Wait until `condition()`, awaited if it is a coroutine's, is true.

    Returns:
        Seconds that it took.

    Raises:
        Late: it was not true `within(seconds)`; says `what`.
    """
    import anyio  # suites with an environment of their own need not have it

    began = time.monotonic()
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return time.monotonic() - began
        _look_at_the_clock(began, within(seconds), what)
        await anyio.sleep(every)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = _LEAST_SECONDS, every: float = 0.02) -> float:
    """`until` for tests that are not async."""
    began = time.monotonic()
    while not condition():
        _look_at_the_clock(began, within(seconds), what)
        time.sleep(every)
    return time.monotonic() - began


def _look_at_the_clock(began: float, seconds: float, what: str) -> None:
    if time.monotonic() - began > seconds:
        raise Late(f"not within {seconds:g} s: {what}")
