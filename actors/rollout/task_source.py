"""Where the rollout gets tasks that were made here, beside the environment's own: a port that `actors.tasks` serves."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from actors.messages import Task


class Play(msgspec.Struct, frozen=True):
    """A task to be played by a group."""

    task: Task
    key: str
    """Names its group: another for each round of the same task."""
    scale: float = 1.0
    """Factor of its attempts' advantages."""


class TaskSource(Protocol):
    """Tasks that were made here; `actors.tasks.mixture.Mixture` is one."""

    async def draw(self, count: int) -> list[Play]:
        """Tasks for a round of `count`, no more than their share; nobody else gets them until `report`."""
        ...

    async def report(self, task_id: str, outcomes: Sequence[float], *, blamed: bool = True) -> None:
        """Note what came of a task; of one that was not drawn here, nothing.

        Args:
            outcomes: of those attempts that had one.
            blamed: whether it is the task's fault if none had.
        """
        ...

    def release(self) -> None:
        """Forget what was drawn and never reported: its rounds were cut off."""
        ...
