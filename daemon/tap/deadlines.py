"""Deadlines for thousands of waits with one task.

A timer per phase (connect, first byte, every piece of a stream) is what would cost most in the path. Instead a wait
writes down when it is due, and one task looks a few times a second and cancels what is late.
"""

import math
import time
from collections.abc import Callable

import anyio


class Guard:
    """One wait: a cancel scope and when it is due."""

    __slots__ = ("_clock", "_guards", "due", "phase", "scope")

    def __init__(self, scope: anyio.CancelScope, guards: "set[Guard]", clock: Callable[[], float]) -> None:
        self.scope, self._guards, self._clock = scope, guards, clock
        self.due = math.inf
        self.phase = ""
        """What is waited for."""

    def __enter__(self) -> "Guard":
        self._guards.add(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._guards.discard(self)

    def within(self, seconds: float, phase: str) -> None:
        """`phase` begins and may take `seconds`."""
        self.due, self.phase = self._clock() + seconds, phase

    def free(self) -> None:
        """No deadline for now."""
        self.due = math.inf


class Watch:
    """All guards of the process."""

    def __init__(self, *, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            interval: seconds between two looks; a deadline may be late by as much.
            clock: seconds, monotonic.
        """
        self._interval, self._clock = interval, clock
        self._guards: set[Guard] = set()

    def guard(self, scope: anyio.CancelScope) -> Guard:
        """A guard on `scope`, to be entered; without a deadline at first."""
        return Guard(scope, self._guards, self._clock)

    def look(self) -> None:
        """Cancel what is late."""
        now = self._clock()
        for guard in [guard for guard in self._guards if guard.due <= now]:
            guard.free()
            guard.scope.cancel()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await anyio.sleep(self._interval)
            self.look()
