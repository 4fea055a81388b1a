"""Failures that wait until there are enough of one kind, and which of them are used together.

A kind is a neighbourhood of goals (`actors.kinds.levels`); where there are enough failures of one masked goal, that is
a kind by itself.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from actors.curation.curriculum import Curriculum
from actors.kinds.clusters import template_of
from actors.messages import Trajectory
from actors.statistics.parties import FairWindow


class Failure(msgspec.Struct, frozen=True):
    """Who failed at something."""

    id: str
    """Of the run."""
    party: str


class Waiting:
    """Failures of one kind, of which no party crowds out the others'."""

    def __init__(self, party: str, most: int) -> None:
        self.party = party
        """Whose the first was."""
        self.ticks = 0
        """Times that nothing could be made of them."""
        self._most = most
        self.failures = FairWindow[Failure](most, lambda one: one.party)

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.failures]

    def keep(self, ids: Collection[str]) -> None:
        """Forget all others."""
        kept = [one for one in self.failures if one.id in ids]
        self.failures = FairWindow[Failure](self._most, lambda one: one.party, kept)


class Asked:
    """The failures of a kind that are used together."""

    def __init__(self, kind: str, runs: Sequence[Trajectory], least: int) -> None:
        """
        Args:
            runs: that failed at goals of the neighbourhood `kind`, the newest last.
            least: failures of one masked goal that make it a kind by itself: who asks so often in the same words is a
                program, and programs ask for different things in like words.
        """
        self.kind = kind
        said = Counter(template_of(run.goal) for run in runs)
        often = [template_of(run.goal) for run in reversed(runs) if said[template_of(run.goal)] >= least]
        self.template = often[0] if often else ""
        """Empty: all that mean about the same."""
        self.runs = [run for run in runs if self.template in ("", template_of(run.goal))]

    def has(self, goal: str, kinds: Curriculum) -> bool:
        """Whether `goal` is of the kind."""
        return template_of(goal) == self.template if self.template else kinds.levels.alike(goal) == self.kind


class SavedKind(msgspec.Struct, frozen=True):
    """A kind as it is stored."""

    party: str
    failures: list[Failure]
    ticks: int
