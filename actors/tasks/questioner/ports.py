"""What the questioner needs from elsewhere, as Protocols; `adapters.task_phrasing` has another."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from actors.messages import Task


class Solver(Protocol):
    """Tries a task with the current policy."""

    async def attempt(self, task: Task, attempts: int) -> float:
        """The share of `attempts` that solved it, 0.0 to 1.0.

        Raises:
            SolverUnavailable: the policy or the environment cannot be asked now.
        """
        ...


class TaskSink(Protocol):
    """The pool of tasks that the sandbox plays beside the environment's own; the store is one."""

    async def offer(self, tasks: Sequence[Task]) -> int:
        """Put `tasks` into the pool, whose concern they are from then on; how many of them were new."""
        ...

    async def task_counts(self) -> Mapping[tuple[str, str], int]:
        """How many tasks there are, by origin and state; "offered" is the state of those never played."""
        ...


class SolverUnavailable(Exception):
    """Nobody can be asked to solve a task now."""
