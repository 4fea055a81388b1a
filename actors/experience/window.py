"""The newest trajectories, to be compared with each other; nobody's flood washes the others' out (`FairWindow`).

Our own rollouts count for nobody's share. What must not become a source never comes in: production that is kept for the
gate, and what was forgotten.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator

from actors.experience.origins import whose
from actors.kinds.holdout import held_out
from actors.messages import Trajectory
from actors.statistics.parties import FairWindow

_TASKS = 8192
"""Tasks whose rollouts are counted."""


class Window:
    """Trajectories in the order in which they came.

    Args:
        size: of them at most.
        first_per_task: rollouts of one sandbox task that are let in, the first; 0 for all of them.
        exam: whether a production trajectory, by id, is the gate's.
    """

    def __init__(
        self,
        size: int,
        *,
        first_per_task: int,
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        self._size, self._first_per_task, self._exam = size, first_per_task, exam
        self._runs: FairWindow[Trajectory] = FairWindow(size, whose)
        self._tasks: OrderedDict[str, int] = OrderedDict()
        self.counts: Counter[str] = Counter()
        """held_out, task_full (refused), over_share (evicted before its time)."""

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, ids: Collection[str]) -> list[Trajectory]:
        """Those of `ids` that are here."""
        wanted = frozenset(ids)
        return [run for run in self._runs if run.id in wanted]

    def add(self, run: Trajectory) -> bool:
        """Take `run` in, unless it must not become a source; its token rows are not kept."""
        if run.source == "production" and self._exam(run.id):
            self.counts["held_out"] += 1
            return False
        if run.source == "sandbox" and run.task_id and self._first_per_task:
            seen = self._tasks.get(run.task_id, 0)
            self._tasks[run.task_id] = seen + 1
            self._tasks.move_to_end(run.task_id)
            if len(self._tasks) > _TASKS:
                self._tasks.popitem(last=False)
            if seen >= self._first_per_task:
                self.counts["task_full"] += 1
                return False
        oldest = next(iter(self._runs)) if self._runs.full else None
        self._runs.append(run)
        self.counts["over_share"] += next(iter(self._runs)) is oldest
        return True

    def revise(self, run: Trajectory) -> bool:
        """Take in a newer word on how `run` went: in its place, or, if it has left, as the newest, to be contrasted
        with what is here now."""
        if not self.get((run.id,)):
            return self.add(run)
        self._runs = FairWindow(self._size, whose, [run if one.id == run.id else one for one in self._runs])
        return True

    def forget(self, ids: Collection[str]) -> None:
        """Let go of trajectories."""
        gone = frozenset(ids)
        kept = [run for run in self._runs if run.id not in gone]
        if len(kept) < len(self._runs):
            self._runs = FairWindow(self._size, whose, kept)
