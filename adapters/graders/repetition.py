"""The repetition gate: who does the same thing again and again has not done it well, whatever a judge says.

A judge that sees effort tends to reward it. AgentEvolver (arXiv 2511.10395) caps the score of an attempt that repeats a
step three times; so do we, for opinions only: what an environment verified stands. A step is the same if it calls the
same and is answered the same (asking again until the answer changes is patience), or says the same.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from actors.messages import Step
from actors.ports.models import Grade

AGAIN = 3
"""Times that make it a repetition."""
CAP = 0.2
"""The most that such an attempt gets."""


def repetitions(steps: Sequence[Step]) -> int:
    """How often the step that occurs most often does."""
    seen: Counter[tuple[object, ...]] = Counter()
    for step in steps:
        calls = tuple((call.name, call.arguments) for call in step.tool_calls)
        seen[(calls, step.observation) if calls else (step.text.strip(),)] += 1
    return max(seen.values(), default=0)


def gated(grade: Grade, steps: Sequence[Step]) -> Grade:
    """`grade`, capped if `steps` repeat themselves; an abstention stays one."""
    times = repetitions(steps)
    if grade.score is None or grade.score <= CAP or times < AGAIN:
        return grade
    return msgspec.structs.replace(grade, score=CAP, reason=f"the same step {times} times; {grade.reason}"[:200])
