"""Waiting for what is away: attempts with pauses that grow, said once when it begins and once when it ends."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from actors.system.errors import DependencyUnavailable
from actors.system.lifecycle import Lifecycle

T = TypeVar("T")
FIRST_WAIT = 0.5
"""Seconds before the first new attempt after an outage or a failure."""


class Drained(Exception):
    """The process is ending while an outage lasts; what is not acked comes again after the start."""


class Patience:
    """Of one task."""

    def __init__(
        self, lifecycle: Lifecycle, log: Any, *, rng: random.Random,
        longest: float = 30.0, waited: Callable[[DependencyUnavailable], object] = lambda error: None,
    ) -> None:  # fmt: skip
        """At most `longest` seconds lie between two attempts; `waited` counts the waits."""
        self.lifecycle, self.log = lifecycle, log
        self._rng, self._longest, self._waited = rng, longest, waited
        self.begun = False
        """The task counts as ready, and does so again after an outage."""

    async def insist(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat `operation` until no dependency is missing any more. `Drained` if draining begins first."""
        attempt = 0
        while True:
            try:
                result = await operation()
            except DependencyUnavailable as error:
                await self.wait_out(error, attempt)
                attempt += 1
                continue
            if attempt:
                self.log.info("dependency_back", attempts=attempt)
                if self.begun:
                    self.lifecycle.ready()
            return result

    async def wait_out(self, error: DependencyUnavailable, attempt: int) -> None:
        """Pause before attempt `attempt + 1`; logs the first one only."""
        reason = f"{type(error).__name__}: {error}"
        if attempt == 0:
            self.log.warning("dependency_away", reason=reason)
        self._waited(error)
        self.lifecycle.waiting(reason)
        if not await self.lifecycle.pause(self.backoff(attempt)):
            raise Drained
        self.lifecycle.beat()

    def backoff(self, attempt: int) -> float:
        """Seconds before attempt `attempt + 1`."""
        return backoff(FIRST_WAIT, attempt, self._longest, self._rng)


def backoff(first: float, attempt: int, longest: float, rng: random.Random) -> float:
    """Seconds to pause: doubles with each attempt, times 0.5 to 1.5 by chance."""
    return min(longest, first * 2.0 ** min(attempt, 30)) * (0.5 + rng.random())
