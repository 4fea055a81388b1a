"""Memory for bodies, one budget for what all connections of a tap ask and one for their copies of what is answered.

Every body is held until it is whole: then the tap can look into it, and nothing is half sent if its client leaves. A
body with a length reserves all of it before it is read, and waits for that in order. One that comes in chunks takes
more as it grows, and is refused where there is no more: waiting with what it has, it could block all others for ever.
An answer goes on as it comes, and its copy is taken as long as there is room: else the call is kept without it.
"""

from collections import deque
from collections.abc import Callable

SMALL = 256 << 10
"""Smaller bodies are not counted."""
LIMIT = 256 << 20
"""Four of the largest requests (64 MiB), or sixteen of the largest answers that are kept (16 MiB). What is sent before
its turn is counted as well.

With both budgets, the bodies once more on their way to an engine, and 128 MiB of records that is 0.9 GiB. Each of 4,096
connections may hold 96 KiB of head, a small body, and as much again on the way to an engine or 250 KiB of an answer
that its agent does not read: 2.4 GiB. systemd gives a tap and its recorder 4 GiB."""


class BodyBudget:
    """Bytes that are held."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = LIMIT if limit is None else limit
        self.taken = 0
        self._queue: deque[tuple[int, Callable[[], None]]] = deque()

    def take(self, size: int) -> bool:
        if self.taken + size > self.limit:
            return False
        self.taken += size
        return True

    def reserve(self, size: int, then: Callable[[], None]) -> bool:
        """Take `size` now, or call `then` as soon as it was taken, behind those who wait already."""
        if not self._queue and self.take(size):
            return True
        self._queue.append((size, then))
        return False

    def leave(self, then: Callable[[], None]) -> None:
        """Wait no longer."""
        self._queue = deque(one for one in self._queue if one[1] != then)
        self.give(0)

    def give(self, size: int) -> None:
        self.taken -= size
        while self._queue and self.take(self._queue[0][0]):
            self._queue.popleft()[1]()
