"""Memory for request bodies, one budget for all connections of a tap.

Every body is held until it is whole: then the tap can look into it, and nothing is half sent if its client leaves. A
body with a length reserves all of it before it is read, and waits for that in order. One that comes in chunks takes
more as it grows, and is refused where there is no more: waiting with what it has, it could block all others for ever.
"""

from collections import deque
from collections.abc import Callable

SMALL = 256 << 10
"""Smaller bodies are not counted."""
LIMIT = 256 << 20


class BodyBudget:
    """Bytes that are held of large bodies."""

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
