"""What loops ask for, in whatever form: calls, and the parameters of a request that may be theirs."""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.messages import ToolCall
from actors.rollout.errors import SamplingRefused

_CHANGES_SAMPLING = ("response_format", "logit_bias", "structured_outputs", "guided_json", "guided_regex", "functions")


def read_call(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    """A call of a loop, ours or in OpenAI's form.

    Raises:
        ValueError: it has no name.
    """
    if isinstance(call, ToolCall):
        return call
    function = call.get("function", call)
    name, arguments = function.get("name"), function.get("arguments", "{}")
    if not isinstance(name, str):
        raise ValueError(f"a call names its function: {call!r}")
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return ToolCall(name, text, str(call.get("id") or ""))


def allowed(sampling: Mapping[str, Any], most: int) -> dict[str, Any]:
    """What of a request's parameters is passed on.

    Raises:
        SamplingRefused: names the parameter.
    """
    given = {name: value for name, value in sampling.items() if value is not None}
    for name in _CHANGES_SAMPLING:
        if name in given and given[name] not in ({}, {"type": "text"}):
            raise SamplingRefused(f"{name} masks tokens, and what is sampled so cannot be trained on; leave it out")
    if given.get("n", 1) != 1:
        raise SamplingRefused("n must be 1: a turn has one answer")
    passed: dict[str, Any] = {}
    if "tool_choice" in given:
        if given["tool_choice"] not in ("auto", "none"):
            raise SamplingRefused("tool_choice must be auto or none: a forced call cannot be trained on")
        passed["tool_choice"] = given["tool_choice"]
    if "stop" in given:
        passed["stop"] = given["stop"]
    wanted = given.get("max_completion_tokens", given.get("max_tokens", most))
    if not isinstance(wanted, int) or wanted < 1:
        raise SamplingRefused(f"max_tokens is {wanted!r}; give tokens, 1 or more")
    return {**passed, "max_tokens": min(wanted, most)}
