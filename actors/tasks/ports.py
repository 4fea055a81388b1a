"""What makes and plays self-made tasks needs of the store, as Protocols; the store implements them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from actors.messages import Attributed, Task, Trajectory
from actors.ports.store import OutcomeRow
from actors.store.outcome_reading import LateOutcome
from actors.store.outcomes import Channel
from actors.store.tasks import TaskState


class TaskBook(Protocol):
    """The pool as those see it who make tasks for it, or play from it."""

    async def offer(self, tasks: Sequence[Task], made_from: Collection[str] = ()) -> int:
        """Put `tasks` into the pool; how many were new. What is there already, by id, stays as it is.

        Args:
            made_from: ids of what they rest on, beside what their `spec` names: forgotten with it.
        """
        ...

    async def task_states(self, states: Collection[str] = (), limit: int = ...) -> list[TaskState]:
        """Tasks in one of `states`, or all of them, those that were played longest ago first."""
        ...

    async def mark_tasks(self, states: Sequence[TaskState]) -> None:
        """Replace what is noted of tasks beside the task itself; a task that has gone since stays gone."""
        ...


class FailureStore(TaskBook, Protocol):
    """For whoever makes tasks of failures."""

    async def recent_outcomes(
        self, *, source: str | None = ..., since: float = ..., limit: int = ...
    ) -> list[OutcomeRow]:
        """Trajectories that ended at or after `since`, newest first."""
        ...

    async def closed_runs(self, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
        """Trajectories by id, each with the engine that answered its first call."""
        ...

    async def trajectory(self, trajectory_id: str) -> Attributed | Trajectory | None:
        """The trajectory, with its credit once it has some."""
        ...

    async def current(self, items: Sequence[Attributed]) -> list[Attributed]:
        """`items` with the outcomes that are known by now."""
        ...

    async def late_outcomes(self, reader: str, channel: Channel, limit: int) -> list[LateOutcome]:
        """Outcomes that came after their runs had closed, and that `reader` has not taken in."""
        ...

    async def tombstoned(self, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that were forgotten."""
        ...

    async def state_get(self, key: str) -> bytes | None:
        """The value under `key`, None if there is none."""
        ...

    async def state_put(self, key: str, value: bytes) -> None:
        """Replace the value under `key`."""
        ...
