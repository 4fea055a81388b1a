"""A grader as the verifier of self-made tasks: a number or no verdict at all."""

from collections.abc import Sequence

import msgspec

from actors.messages import Step, Task, ToolCall
from actors.ports.errors import JudgeUnavailable
from actors.ports.graders import Grader
from actors.ports.reference_calls import SyntheticTaskSpec


class Verdicts:
    """An `OutcomeGrader` of `adapters.environments.synthetic_tasks`.

    Args:
        grader: whose grades these are.
    """

    def __init__(self, grader: Grader) -> None:
        self._grader = grader

    async def grade(self, task: Task, steps: Sequence[Step]) -> float:
        """The outcome, 0.0 to 1.0.

        Raises:
            JudgeUnavailable: the grader abstained: the attempt has no outcome, not a bad one.
        """
        spec = SyntheticTaskSpec.of(task)
        reference = [
            ToolCall(call.name, msgspec.json.encode(call.arguments).decode())
            for call in (spec.reference if spec else ())
        ]
        grade = await self._grader.grade(task, steps, reference=reference)
        if grade.score is None:
            raise JudgeUnavailable(f"{self._grader.name} abstains: {grade.reason}")
        return grade.score
