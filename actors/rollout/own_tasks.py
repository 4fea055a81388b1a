"""The environment's own tasks: numbers that count up, of the kinds that are planned, none of them twice.

The planner says how many of each cluster of goals a round should have, and the next numbers that fit are taken; numbers
that fit nothing are passed over for good. What no number within reach fits is taken as it comes.
"""

from actors.kinds.clusters import cluster_of
from actors.ports.environments import Environment
from actors.ports.errors import AdapterError
from actors.ports.store import StateStore, TaskPlanner

_NEXT = "rollout/next"
"""Number of the next task, in decimal."""


class OwnTasks:
    """Numbers of training tasks, in order."""

    def __init__(
        self,
        *,
        store: StateStore,
        environment: Environment,
        planner: TaskPlanner | None,
        families: str | None,
        first: int,
        lookahead: int,
    ) -> None:
        """
        Args:
            planner: which kinds; None for the environment's mix.
            families: kinds of task; None for the environment's usual mix.
            first: number of the first task of a fresh store.
            lookahead: numbers looked at for each task.
        """
        self._store, self._environment, self._planner = store, environment, planner
        self._families, self._first, self._lookahead = families, first, max(1, lookahead)
        self._next = first
        self.unplanned = 0
        """Tasks that were taken as they came, because none of the planned kind was within reach."""

    async def start(self) -> None:
        """Go on where the last process was."""
        data = await self._store.state_get(_NEXT)
        self._next = int(data) if data is not None else self._first

    async def take(self, count: int) -> list[int]:
        """The next `count` numbers that fit the plan, which nobody gets again, whatever becomes of them."""
        if count < 1:
            return []
        numbers = self._choose(count)
        self._next = max(numbers, default=self._next - 1) + 1
        await self._store.state_put(_NEXT, str(self._next).encode())
        return numbers

    def _choose(self, count: int) -> list[int]:
        plan = dict(self._planner.plan(count)) if self._planner is not None else {}
        free = count - sum(plan.values())
        chosen: list[int] = []
        passed: list[int] = []
        for number in range(self._next, self._next + count * self._lookahead):
            if len(chosen) == count:
                break
            # First what the environment chooses: it must not be what the plan left over.
            cluster = "" if free else self._cluster(number)
            if free:
                free -= 1
            elif plan.get(cluster):
                plan[cluster] -= 1
            else:
                passed.append(number)
                continue
            chosen.append(number)
        missing = passed[: count - len(chosen)]
        self.unplanned += len(missing)
        return sorted(chosen + missing)

    def _cluster(self, number: int) -> str:
        try:
            return cluster_of(self._environment.sample(number, "train", self._families).goal)
        except (AdapterError, ValueError):
            # Its turn to fail, and to be counted, is when it is played.
            return ""
