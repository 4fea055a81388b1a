"""What the questioner needs from elsewhere, as Protocols; `adapters.wordings` has another."""

from collections.abc import Sequence
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
    """Where self-made tasks go."""

    async def offer(self, tasks: Sequence[Task]) -> int:
        """Take in as many of `tasks` as there is room for, first come first; how many that were.

        A task that is there already counts as taken.
        """
        ...


class SolverUnavailable(Exception):
    """Nobody can be asked to solve a task now."""
