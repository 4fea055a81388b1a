"""Whether a tool call fits the tools that the request offered: name, JSON, and the schema of the arguments.

Checked are what a model gets wrong: a tool that is not there, arguments that are not a JSON object, a required argument
left out, one that the schema does not know and forbids, a value that does not fit its schema
(`actors.ports.json_schema`). What passes here may still be refused by the tool, what fails here is surely wrong.
"""

from collections.abc import Mapping
from typing import Any

from actors.messages import Step, ToolCall
from actors.ports.json_schema import fits
from actors.ports.parsed_calls import read_call

_TAG = "<tool_call"


def invalid(step: Step, tools: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a call of `step` cannot be right, or was meant as a call and could not be read as one."""
    if not step.tool_calls:
        return _TAG in step.text
    return any(fault(call, tools) for call in step.tool_calls)


def fault(call: ToolCall, tools: Mapping[str, Mapping[str, Any]]) -> str:
    """What is wrong with `call`, empty if nothing is; any name will do where no tools were offered."""
    if tools and call.name not in tools:
        return f"no tool {call.name!r}"
    arguments = read_call(call).arguments
    if arguments is None:
        return "arguments are no JSON object"
    schema = tools.get(call.name, {})
    for name in _list(schema.get("required")):
        if name not in arguments:
            return f"argument {name!r} is missing"
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return ""
    for name, value in arguments.items():
        wanted = properties.get(name)
        if wanted is None:
            if schema.get("additionalProperties") is False:
                return f"no argument {name!r}"
        elif not fits(value, wanted):
            return f"argument {name!r} does not fit"
    return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
