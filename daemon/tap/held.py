"""Bytes of request bodies that a tap holds in memory, of all its connections together.

Whoever may connect may send: without a bound over all connections each of them costs up to 8 MiB. What
finds no room is not refused, for it may be an agent's: it is passed on as it comes, without being held or kept.
"""

LIMIT = 256 << 20
"""Of one process. Some 500 conversations of half a megabyte wait for an engine at a time; above that calls pass without
token ids, and are counted as `not_held`."""


class Held:
    """Counts what is held, and says when there is no room."""

    __slots__ = ("limit", "refused", "taken")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.taken = 0
        self.refused = 0
        """Times that there was no room."""

    def take(self, size: int) -> bool:
        """Whether there is room for `size` bytes more, which then are taken."""
        if self.taken + size > self.limit:
            self.refused += 1
            return False
        self.taken += size
        return True

    def give(self, size: int) -> None:
        """So many bytes are gone."""
        self.taken -= size
