"""`EnvironmentGrader`: the environment's own verdict, where it has one."""

from collections.abc import Sequence

from actors.messages import Step, Task, ToolCall
from actors.ports.graders import Grade


class EnvironmentGrader:
    """A `Grader` without an opinion of its own: first choice wherever an execution can verify."""

    name = "environment"

    async def grade(
        self,
        task: Task,
        steps: Sequence[Step],
        *,
        reference: Sequence[ToolCall] = (),
        outcome: float | None = None,
    ) -> Grade:
        if outcome is None:
            return Grade(reason="the environment verified nothing")
        return Grade(score=min(1.0, max(0.0, outcome)), reason="verified by the environment")
