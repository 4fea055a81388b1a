"""What is remembered by name, bounded: whoever fills it up pushes out his own."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from actors.statistics.parties import CAP

T = TypeVar("T")


class Remembered(Generic[T]):
    """Things by name, each with an owner; what was longest without use goes first.

    An owner who holds more than `CAP` of it makes room with his own, so that a flood of names forgets the flood.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._things: OrderedDict[str, tuple[str, T]] = OrderedDict()
        self._held: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._things)

    def __contains__(self, name: str) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[tuple[str, str, T]]:
        """Name, owner and thing, the one longest without use first."""
        return ((name, owner, thing) for name, (owner, thing) in self._things.items())

    def get(self, name: str) -> T | None:
        """The thing of that name, which is in use by that; None if there is none."""
        found = self._things.get(name)
        if found is None:
            return None
        self._things.move_to_end(name)
        return found[1]

    def look(self, name: str) -> T | None:
        """The thing of that name, which is no more in use by that; None if there is none."""
        found = self._things.get(name)
        return None if found is None else found[1]

    def put(self, name: str, owner: str, thing: T) -> T | None:
        """Remember `thing`; returns what made room for it, if anything had to."""
        self.drop(name)
        self._things[name] = (owner, thing)
        self._held[owner] += 1
        if len(self._things) <= self._limit:
            return None
        # Only the owner who puts can have come to hold too much.
        loud = self._held[owner] > max(1.0, CAP * self._limit)
        return self.drop(next(key for key, (whose, _) in self._things.items() if whose == owner or not loud))

    def drop(self, name: str) -> T | None:
        """Forget it on purpose; returns what it was."""
        owner, thing = self._things.pop(name, (None, None))
        if owner is not None:
            self._held[owner] -= 1
            if not self._held[owner]:
                del self._held[owner]
        return thing
