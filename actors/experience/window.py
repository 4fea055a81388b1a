"""The newest trajectories, to be compared with each other; nobody's flood washes the others' out.

When the window is full the oldest goes; but where one tenant holds more than its share of it, that tenant's oldest, and
where one key holds more than its share of that tenant, that key's. Our own rollouts count for nobody's share.
What must not become a source never comes in: production that is kept for the gate, and what was forgotten.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator

from actors.experience.origins import TRUSTED
from actors.kinds.holdout import held_out
from actors.messages import Trajectory

_TASKS = 8192
"""Tasks whose rollouts are counted."""


class Window:
    """Trajectories in the order in which they came.

    Args:
        size: of them at most.
        max_share: of one tenant, and of one key.
        first_per_task: rollouts of one sandbox task that are let in, the first; 0 for all of them.
        exam: whether a production trajectory, by id, is the gate's.
        party: whose word a trajectory is, see `Origins.party`.
    """

    def __init__(
        self,
        size: int,
        *,
        max_share: float,
        first_per_task: int,
        party: Callable[[Trajectory], str],
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        self._size, self._max_share, self._party = size, max_share, party
        self._first_per_task, self._exam = first_per_task, exam
        self._runs: OrderedDict[str, Trajectory] = OrderedDict()
        self._tasks: OrderedDict[str, int] = OrderedDict()
        self._tenants: Counter[str] = Counter()
        """Production in the window, by tenant."""
        self.counts: Counter[str] = Counter()
        """held_out, task_full (refused), over_share (evicted before its time)."""

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, ids: Collection[str]) -> list[Trajectory]:
        """Those of `ids` that are here."""
        return [self._runs[id_] for id_ in ids if id_ in self._runs]

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
        self._runs[run.id] = run
        self._tenants[run.tenant] += run.source not in TRUSTED
        if len(self._runs) > self._size:
            self._drop(self._next_out())
        return True

    def revise(self, run: Trajectory) -> bool:
        """Take in a newer word on how `run` went: in its place, or, if it has left, as the newest, to be contrasted
        with what is here now."""
        if run.id not in self._runs:
            return self.add(run)
        self._runs[run.id] = run
        return True

    def forget(self, ids: Collection[str]) -> None:
        """Let go of trajectories."""
        for id_ in [id_ for id_ in ids if id_ in self._runs]:
            self._drop(id_)

    def _drop(self, id_: str) -> None:
        run = self._runs.pop(id_)
        if run.source not in TRUSTED:
            self._tenants[run.tenant] -= 1
            if not self._tenants[run.tenant]:
                del self._tenants[run.tenant]

    def _next_out(self) -> str:
        oldest = next(iter(self._runs))
        tenant = next((name for name, held in self._tenants.items() if held > self._max_share * self._size), None)
        if tenant is None:
            return oldest
        runs = [run for run in self._runs.values() if run.tenant == tenant and run.source not in TRUSTED]
        parties = Counter(map(self._party, runs))
        loud = next((name for name, held in parties.items() if name and held > self._max_share * len(runs)), None)
        out = next(run.id for run in runs if loud is None or self._party(run) == loud)
        self.counts["over_share"] += out != oldest
        return out
