"""Exchanges of an agent that works in steps, as the tap would report them."""

import json
from typing import Any

from actors.messages import Exchange, Feedback, Hints, Sampling, VersionSpan, pack_array

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
END = 2
"""Token that ends a turn."""


def exchange(
    run: str,
    number: int,
    *,
    tenant: str = "default",
    explicit: bool = False,
    call_ids: bool = True,
    version: int = 0,
    started: float | None = None,
    tokens: bool = True,
    **fields: Any,
) -> Exchange:
    """Call `number` (0, 1, ...) of the run `run`: each answer is one tool call, whose result the next request carries.

    Prompts extend each other: 10 tokens of opening, 4 of answer, 3 of observation, and so on.
    """
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "desk"},
        {"role": "user", "content": f"goal of {run}"},
    ]
    for past in range(number):
        messages.append({"role": "assistant", "content": None, "tool_calls": [_call(run, past, call_ids)]})
        messages.append({"role": "tool", "content": f"result {past}", "tool_call_id": _call_id(run, past, call_ids)})
    reply = {"role": "assistant", "content": "", "tool_calls": [_call(run, number, call_ids)], "refusal": None}
    key = f"{tenant}-{run}-{number}"
    at = 100.0 + 10 * number if started is None else started
    prompt = [1] * 10
    for past in range(number):
        prompt += [*_sampled(past), 5, 6, 7]
    sampled = _sampled(number)
    answered = tuple(_call_id(run, past, call_ids) for past in range(number))
    values: dict[str, Any] = {
        "id": f"x-{key}",
        "tenant": tenant,
        "endpoint": "/v1/chat/completions",
        "started": at,
        "duration": 0.5,
        "status": 200,
        "request": json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode(),
        "response": json.dumps({"id": f"r-{key}", "choices": [{"message": reply}]}).encode(),
        "response_id": f"r-{key}",
        "prompt_ids": pack_array(prompt, "<i4") if tokens else b"",
        "response_ids": pack_array(sampled, "<i4") if tokens else b"",
        "logprobs": pack_array([-0.5] * len(sampled), "<f4") if tokens else b"",
        "versions": (VersionSpan(version, 0, len(sampled)),),
        "sampling": Sampling(),
        "hints": Hints(trajectory_id=run if explicit else "", tool_call_ids=answered),
    }
    return Exchange(**{**values, **fields})


def feedback(run: str, number: int, outcome: float | None = 1.0, *, tenant: str = "default", **fields: Any) -> Feedback:
    """What was said of call `number` of `run`, by its response id."""
    key = f"{tenant}-{run}-{number}"
    values: dict[str, Any] = {
        "id": f"f-{key}", "received": 1000.0 + number, "tenant": tenant, "response_id": f"r-{key}", "outcome": outcome,
    }  # fmt: skip
    return Feedback(**{**values, **fields})


def _sampled(number: int) -> list[int]:
    return [100 + number, 101 + number, 102 + number, END]


def _call_id(run: str, number: int, unique: bool) -> str:
    return f"call-{run}-{number}" if unique else "call_0"


def _call(run: str, number: int, unique: bool) -> dict[str, Any]:
    function = {"name": "search", "arguments": json.dumps({"run": run, "n": number})}
    return {"id": _call_id(run, number, unique), "type": "function", "function": function}
