"""Graders: how well an attempt at a task went, where no verifier of the environment can say it by itself.

    task, steps, reference  ->  Grade

Registered by entry point (`grader.NAME`), so that a self-made task's verifier is a name in its configuration. A grader
that cannot say abstains (`score` None): the attempt is masked. It never says 0 because it broke down, which would be
a failure that the policy did not make, in the middle of its group's baseline.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from actors.messages import Step, Task, ToolCall

ACHIEVED = 0.6
"""From here on a grade says that the goal was reached."""


class Grade(msgspec.Struct, frozen=True, kw_only=True):
    """What a grader says of one attempt."""

    score: float | None = None
    """0 to 1; None: it abstains, and nothing may be learned from this attempt's outcome."""
    reason: str = ""
    tokens: int = 0
    """LLM tokens that it cost."""
    cost: float = 0.0
    """Money that it cost, in the currency of the endpoint's price list."""

    @property
    def achieved(self) -> bool:
        return self.score is not None and self.score >= ACHIEVED


class Grader(Protocol):
    """Says how well an attempt went."""

    name: str

    async def grade(self, task: Task, steps: Sequence[Step], *, reference: Sequence[ToolCall] = ()) -> Grade:
        """The grade of `steps` as an attempt at `task.goal`; lessons that stood in the prompt are not part of either.

        Never raises for a judge that is away or answers garbage: it abstains, and says why.

        Args:
            reference: calls that are known to reach the goal; other ways are as good. Empty if none are known.
        """
        ...


def needs_reference(grader: Grader) -> bool:
    """Whether `grader` abstains wherever no reference is known; one of your own has an attribute of this name."""
    return bool(getattr(grader, "needs_reference", False))


__all__ = ["ACHIEVED", "Grade", "Grader", "needs_reference"]
