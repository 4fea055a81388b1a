"""Each signal's record, agent by agent: how often it speaks, how right it was, and whether it must be kept apart. Pure.

A signal is right where it said +1 and success was reported, or -1 and failure. Precision is a Beta(1, 1) estimate over
reported outcomes by the party rule. A signal whose precision *falls* is kept apart: users have begun to thank for wrong
answers, or an agent's framework writes what users would. One that was never right needs no quarantine, for the outcome
model has learned what it weighs.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from actors.statistics.intervals import newcombe
from actors.statistics.parties import set_aside, thinned

RECENT = 24
"""Newest words of a signal that are held against those before, of which there must be as many."""
CONFIDENCE = 0.98
"""Two-sided, of the fall: a signal that stays as it was is kept apart by one look in a hundred."""


class Word(msgspec.Struct, frozen=True):
    """What a signal said of a run whose outcome was reported."""

    party: str
    right: bool


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A signal of an agent."""

    signal: str
    agent: str
    runs: int
    """Runs that were read."""
    spoke: int
    known: int
    """Of those that it spoke of, outcomes that count by the party rule."""
    precision: float
    """(right + 1) / (known + 2)."""
    quarantined: bool

    @property
    def coverage(self) -> float:
        return self.spoke / self.runs if self.runs else 0.0


def counted(said: Sequence[Word]) -> list[Word]:
    """Those of `said`, oldest first, that the party rule lets count."""
    newest = list(reversed(said))
    kept = [newest[place] for place in thinned([word.party for word in newest])][::-1]

    def share(left_out: Collection[str]) -> float:
        own = [word.right for word in kept if word.party not in left_out]
        return sum(own) / len(own) if own else float("nan")

    aside = set_aside([word.party for word in kept], share)
    return [word for word in kept if word.party not in aside]


def precision(said: Iterable[Word]) -> float:
    """The mean of Beta(1 + right, 1 + wrong)."""
    rights = [word.right for word in said]
    return (sum(rights) + 1.0) / (len(rights) + 2.0)


def fallen(said: Sequence[Word]) -> bool:
    """Whether the newest of `said` are surely less often right than those before."""
    before, recent = said[:-RECENT], said[-RECENT:]
    if len(before) < RECENT:
        return False
    rights = (sum(word.right for word in before), len(before)), (sum(word.right for word in recent), len(recent))
    return newcombe(*rights, CONFIDENCE).low > 0.0
