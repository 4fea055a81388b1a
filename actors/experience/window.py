"""The newest trajectories, to be compared with each other; nobody's flood washes the others' out (`FairWindow`).

One run in twenty may have an outcome, hours late. Those that have one are kept apart from those that have none, so many
of either: what is known of how runs went is not washed out by runs of which nothing is.

Our own rollouts count for nobody's share. What must not become a source never comes in: production that is kept for the
gate, and what was forgotten.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from actors.experience.origins import whose
from actors.kinds.clusters import template_of
from actors.kinds.holdout import held_out
from actors.messages import Experience, Trajectory
from actors.statistics.parties import FairWindow

_ASKED, _GOAL = 8, 300
"""Goals that say how people ask for what a lesson is about, and characters of each: with eight nine of ten paraphrases
are found, with one two of three (docs/measured.md)."""


class Window:
    """Trajectories in the order in which they came.

    Args:
        size: of those with an outcome at most, and of those without.
        exam: whether a production trajectory, by id, is the gate's.
    """

    def __init__(self, size: int, *, exam: Callable[[str], bool] = held_out) -> None:
        self._size, self._exam = size, exam
        self._told: FairWindow[Trajectory] = FairWindow(size, whose)
        self._untold: FairWindow[Trajectory] = FairWindow(size, whose)
        self._turns = 0
        self._turn: dict[str, int] = {}
        """By trajectory: its place in the order of arrival."""
        self.counts: Counter[str] = Counter()
        """held_out (refused), over_share (evicted before its time)."""

    def __iter__(self) -> Iterator[Trajectory]:
        """The oldest first; of equal age, as they came."""
        return iter(sorted((*self._told, *self._untold), key=lambda run: (run.ended, self._turn[run.id])))

    def __len__(self) -> int:
        return len(self._told) + len(self._untold)

    def get(self, ids: Collection[str]) -> list[Trajectory]:
        """Those of `ids` that are here."""
        wanted = frozenset(ids)
        return [run for run in self if run.id in wanted]

    def asked(self, lesson: Experience) -> tuple[str, ...]:
        """Goals of sources of `lesson`, masked, the newest different ones; those that it had if none is here."""
        goals = [template_of(run.goal)[:_GOAL] for run in self.get(lesson.sources)]
        return tuple(dict.fromkeys(filter(None, reversed(goals))))[:_ASKED] or lesson.asked

    def add(self, run: Trajectory) -> bool:
        """Take `run` in, unless it must not become a source; its token rows are not kept."""
        if run.source == "production" and self._exam(run.id):
            self.counts["held_out"] += 1
            return False
        self._append(run)
        return True

    def _append(self, run: Trajectory) -> None:
        runs = self._untold if run.outcome is None else self._told
        oldest = next(iter(runs)) if runs.full else None
        self._turns += 1
        self._turn[run.id] = self._turns
        runs.append(run)
        self.counts["over_share"] += next(iter(runs)) is oldest
        if len(self._turn) > 2 * len(self) + 64:
            self._turn = {one.id: self._turn[one.id] for one in self}

    def revise(self, run: Trajectory) -> bool:
        """Take in a newer word on how `run` went: in its place, or, if it has left, as the newest, to be contrasted
        with what is here now."""
        known = self.get((run.id,))
        if not known:
            return self.add(run)
        if (known[0].outcome is None) == (run.outcome is None):
            self._keep(lambda one: run if one.id == run.id else one)
            return True
        self._keep(lambda one: None if one.id == run.id else one)
        self._append(run)
        return True

    def forget(self, ids: Collection[str]) -> None:
        """Let go of trajectories."""
        gone = frozenset(ids)
        if not gone.isdisjoint(self._turn):
            self._keep(lambda one: None if one.id in gone else one)

    def _keep(self, change: Callable[[Trajectory], Trajectory | None]) -> None:
        """What `change` makes of each; None lets it go."""
        self._told, self._untold = (
            FairWindow(self._size, whose, filter(None, map(change, runs))) for runs in (self._told, self._untold)
        )
