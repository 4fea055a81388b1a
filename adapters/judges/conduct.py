"""`ConductJudge`: prefers between two answers by how they behave, without any LLM and without knowing the task.

It looks at what the rules judge does not: the answer alone, before anything came back. In this order, the first
difference decides; none is a tie:

1. Tool calls that can be read, of tools that were offered, with arguments that fit their schema.
2. No going round in circles: repetition inside the answer, or a call that the conversation has already made.
3. Arguments that come from the conversation rather than from nowhere.
4. No refusal.
5. The shorter of two answers in plain text, if it is shorter by half.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from actors.messages import ToolCall
from actors.ports.answers import Answer, conversation_text, loops, offered, read_call, refuses, valid_calls
from actors.ports.preference import Request
from adapters.judges.evidence import values_of


class ConductJudge:
    """A `PreferenceJudge` that follows the rules above; pure, immediate, the same answer every time."""

    name = "conduct"
    rubric = "conduct-1"

    async def prefer(self, request: Request, first: Answer, second: Answer) -> float | None:
        """Never abstains, never raises."""
        one, other = _merits(request, first), _merits(request, second)
        if one != other:
            return 1.0 if one > other else 0.0
        if not first.calls and not second.calls:
            lengths = len(first.text), len(second.text)
            if min(lengths) * 2 <= max(lengths) and min(lengths) > 0:
                return 1.0 if lengths[0] < lengths[1] else 0.0
        return 0.5


def _merits(request: Request, answer: Answer) -> tuple[float, ...]:
    """What speaks for `answer`, the weightiest first."""
    made = _made(request.messages)
    calls = [read_call(call) for call in answer.calls]
    repeats = loops(answer) or any(call.key in made for call in calls)
    said = conversation_text(request.messages)
    values = [value for call in calls for value in values_of(call)]
    grounded = all(json.dumps(value)[1:-1] in said for value in values)
    return (
        float(valid_calls(answer, offered(request.tools))),
        float(not repeats),
        float(grounded),
        float(not refuses(answer)),
    )


def _made(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Keys of the calls that the conversation has already made."""
    found: set[str] = set()
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                made = ToolCall(str(function.get("name")), str(function.get("arguments") or "{}"))
                found.add(read_call(made).key)
    return found
