"""The party rule: no verdict rests on one party's word. Pure; asked wherever evidence of strangers decides something.

A party is an agent key, or a tenant where calls have no key. From four parties on none weighs more than `CAP`, and the
two that pull hardest, one up and one down, are set aside (a trimmed estimate: Huber 1981, section 3.3).
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Generic, TypeVar

T = TypeVar("T")

FEWEST = 4
"""Parties with evidence from which on the rule binds: with two set aside, two are left to agree."""
EVIDENCE = 4
"""Pieces that make a party one with evidence; absolute, so that nobody's flood makes others' too little."""
CAP = 1 / 3
"""Of all evidence, for one party."""


def party_of(tenant: str, caller: str) -> str:
    """Who stands behind a call: `caller` is the id of the agent key, empty without one."""
    return f"{tenant}/{caller}" if caller else tenant


def with_evidence(parties: Iterable[str]) -> int:
    """Parties that have evidence, of those of each piece."""
    return sum(pieces >= EVIDENCE for pieces in Counter(parties).values())


def binds(parties: Iterable[str]) -> bool:
    """Whether the rule holds for evidence of these `parties`."""
    return with_evidence(parties) >= FEWEST


def thinned(parties: Sequence[str], *, bound: bool | None = None) -> list[int]:
    """Places of the pieces (`parties` of each, the newest first) that are taken, ascending: all, or so many that no
    party has more than `CAP` of them. `bound` says whether the rule binds, where these are one side."""
    allowed = _allowed(parties, bound)
    if not allowed:
        return list(range(len(parties)))
    return [place for place, number in enumerate(_rounds(parties)) if number < allowed]


def newest(parties: Iterable[str], size: int, beyond: int) -> list[int]:
    """Places of `size` pieces, ascending: of every party as many of its newest as of any other, or all that it has.

    A cap would not do: three loud parties, each within it, would leave no room for the fourth that makes the rule bind.
    So many are read `beyond` the newest `size`, for parties that others have pushed back.
    """
    return sorted(in_turn(list(islice(parties, size + beyond)))[:size])


def in_turn(keys: Sequence[Hashable]) -> list[int]:
    """All places, so that each key has its first before any has its second, and each its newest first."""
    rounds = _rounds(keys)
    return sorted(range(len(rounds)), key=lambda place: rounds[place])


def _rounds(keys: Sequence[Hashable]) -> list[int]:
    """How often its key came before, of each."""
    counted: defaultdict[Hashable, Iterator[int]] = defaultdict(count)
    return [next(counted[key]) for key in keys]


def _allowed(parties: Sequence[str], bound: bool | None) -> int:
    """Pieces that one party may have; 0: the rule does not bind."""
    if not parties or not (binds(parties) if bound is None else bound):
        return 0
    # The most that is at most a third of what is then left; a piece more than the others' half is too much.
    pieces = Counter(parties).values()
    allowed = max(pieces)
    while allowed > EVIDENCE and allowed > CAP * sum(min(one, allowed) for one in pieces):
        allowed -= 1
    return allowed


def set_aside(parties: Sequence[str], estimate: Callable[[Collection[str]], float]) -> frozenset[str]:
    """The two parties that pull `estimate` (without those it is given; NaN if nothing is left) hardest, one up and
    one down; none if the rule does not bind."""
    if not binds(parties):
        return frozenset()
    # By name, so that equal pulls give the same answer everywhere. Who has no evidence cannot pull hard.
    heard = sorted(party for party, pieces in Counter(parties).items() if pieces >= EVIDENCE)
    without = {party: value for party in heard if (value := estimate((party,))) == value}
    if len(without) < 2:
        return frozenset()
    up = min(without, key=without.__getitem__)
    down = max((party for party in without if party != up), key=without.__getitem__)
    return frozenset((up, down))


class FairWindow(Generic[T]):
    """The newest things, bounded: the oldest goes, or, where a party holds more than `CAP`, that party's oldest."""

    def __init__(self, size: int, party: Callable[[T], str], things: Iterable[T] = ()) -> None:
        self._size, self._party = size, party
        self._things: deque[T] = deque()
        self._held: Counter[str] = Counter()
        for thing in things:
            self.append(thing)

    def __iter__(self) -> Iterator[T]:
        """The oldest first."""
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    @property
    def full(self) -> bool:
        return len(self._things) >= self._size

    def append(self, thing: T) -> None:
        """Take in the newest."""
        self._things.append(thing)
        self._held[self._party(thing)] += 1
        while len(self._things) > self._size:
            self._let_go()

    def _let_go(self) -> None:
        loudest, held = self._held.most_common(1)[0]
        place = 0
        if held > CAP * self._size:
            place = next(place for place, one in enumerate(self._things) if self._party(one) == loudest)
        party = self._party(self._things[place])
        del self._things[place]
        self._held[party] -= 1
        if not self._held[party]:
            del self._held[party]
