"""What the questioner needs from elsewhere, as Protocols, with the draft that they speak about."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from actors.messages import Task


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was executed and needs words."""

    goal: str
    """What the templates made of it."""
    calls: tuple[tuple[str, dict[str, Any]], ...]
    """Tool and arguments of the reference, in order."""
    descriptions: dict[str, str]
    """What the tools say of themselves, by name."""
    told: tuple[str, ...]
    """Values that the goal must name: nobody can find them out."""
    hidden: tuple[str, ...]
    """Values that it must not name: finding them out is the task."""
    changed: dict[str, Any]
    """What the reference changes: state keys with their new value."""
    style: str = ""


class Wording(Protocol):
    """Says a draft in words; a language model is one."""

    async def word(self, draft: Draft) -> str:
        """A goal for `draft`, in one paragraph. What it says is checked by the caller.

        Raises:
            WordingFailed: no usable answer; the template's words will do.
        """
        ...


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


class WordingFailed(Exception):
    """A draft was not worded.

    Attributes:
        reason: a stable short word to count by.
    """

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(f"{reason}: {text}" if text else reason)
        self.reason = reason


class SolverUnavailable(Exception):
    """Nobody can be asked to solve a task now."""
