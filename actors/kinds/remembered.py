"""What is remembered by name, bounded: whoever fills it up pushes out his own."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from actors.statistics.parties import CAP

T = TypeVar("T")


class Remembered(Generic[T]):
    """Things by name, each with an owner; what was longest without use goes first.

    An owner who holds more than `CAP` of it makes room with his own, so that a flood of names forgets the flood.
    """

    def __init__(self, limit: int, things: Iterable[tuple[str, str, T]] = ()) -> None:
        self._limit = limit
        self._things: OrderedDict[str, tuple[str, T]] = OrderedDict()
        for name, owner, thing in things:
            self.put(name, owner, thing)

    def __len__(self) -> int:
        return len(self._things)

    def __contains__(self, name: str) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[tuple[str, str, T]]:
        """Name, owner and thing, the one longest without use first: what another one is made from."""
        return ((name, owner, thing) for name, (owner, thing) in self._things.items())

    def get(self, name: str) -> T | None:
        """The thing of that name, which is in use by that; None if there is none."""
        if name in self._things:
            self._things.move_to_end(name)
        return self.look(name)

    def look(self, name: str) -> T | None:
        """The thing of that name, which is no more in use by that; None if there is none."""
        found = self._things.get(name)
        return None if found is None else found[1]

    def put(self, name: str, owner: str, thing: T) -> T | None:
        """Remember `thing`; returns what made room for it, if anything had to."""
        self._things[name] = owner, thing
        self._things.move_to_end(name)
        if len(self._things) <= self._limit:
            return None
        # Only the owner who puts can have come to hold too much.
        own = [key for key, (whose, _) in self._things.items() if whose == owner]
        loud = len(own) > max(1.0, CAP * self._limit)
        return self.drop(own[0] if loud else next(iter(self._things)))

    def drop(self, name: str) -> T | None:
        """Forget it on purpose; returns what it was."""
        found = self._things.pop(name, None)
        return None if found is None else found[1]
