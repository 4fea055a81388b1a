"""Which weight version came of which, and how far apart two of them are: staleness, for all who ask.

Versions form a tree: going back means that the next update has an older parent. What counts is the updates between the
version that sampled a run and the one that is trained: after a rollback from v10 to v0, runs of v0 are fresh.
"""

from collections.abc import Iterable

from actors.messages.bounded import Bounded

REMEMBERED = 1000
"""Versions whose parents are remembered, newest; what lies further back is nobody's ancestor any more."""


class Lineage:
    """The tree of versions. Bounded; pure."""

    def __init__(self, parents: Iterable[tuple[int, int]] = ()) -> None:
        self._parents: Bounded[int, int] = Bounded(REMEMBERED)
        for version, parent in sorted(parents):
            self.add(version, parent)

    def add(self, version: int, parent: int) -> None:
        """`version` was made out of `parent`; a parent is older than its child, anything else is ignored."""
        if 0 <= parent < version:
            self._parents[version] = parent

    def line(self, version: int) -> list[int]:
        """`version`, its parent, and so on as far as is remembered."""
        found = [version]
        while found[-1] in self._parents:
            found.append(self._parents[found[-1]])
        return found

    def distance(self, version: int, head: int) -> int | None:
        """Updates from `version` to `head`; None if `head` does not come of `version`.

        A version above all that are known was not heard of yet, but its runs were: it is at 0.
        """
        if version < 0:
            return None
        if version > max(head, next(reversed(self._parents), 0)):
            return 0
        steps, at = 0, head
        while at > version and at in self._parents:
            at, steps = self._parents[at], steps + 1
        return steps if at == version else None
