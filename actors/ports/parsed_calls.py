"""Tool calls and tool lists, read from the JSON in which they come, and whether the one fits the other."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.messages import ToolCall
from actors.ports.json_schema import fits

_EDITION = re.compile(r"(_use)?(_preview)?(_\d{4}_\d{2}_\d{2})?$")
"""Of a built-in tool's kind, such as `web_search_preview_2025_03_11`."""


class ParsedCall(msgspec.Struct, frozen=True):
    """A tool call, read."""

    name: str
    arguments: dict[str, Any] | None
    """None: not a JSON object."""

    @property
    def key(self) -> str:
        """The same for calls that ask for the same thing, however their JSON was written."""
        return f"{self.name} {json.dumps(self.arguments, sort_keys=True)}"


def read_call(call: ToolCall) -> ParsedCall:
    """`call` with its arguments parsed."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return ParsedCall(call.name, arguments if isinstance(arguments, dict) else None)


def offered(tools: bytes | Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Schema of the arguments by tool name, from a request's tool list in any dialect; {} where it has none. A tool
    that is built into the engine has the name of its kind, as its calls have it."""
    found: dict[str, dict[str, Any]] = {}
    for tool in _listed(tools) if isinstance(tools, bytes) else tools:
        function = tool.get("function", tool)
        if not isinstance(function, Mapping):
            continue
        name, kind = function.get("name"), function.get("type")
        if isinstance(name, str):
            schema = function.get("parameters", function.get("input_schema"))
            found[name] = schema if isinstance(schema, dict) else {}
        elif isinstance(kind, str):
            found[_EDITION.sub("", kind)] = {}
    return found


def _listed(tools: bytes) -> list[dict[str, Any]]:
    try:
        listed = json.loads(tools) if tools else []
    except (ValueError, RecursionError):
        return []
    return [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []


def fault(call: ToolCall, tools: Mapping[str, Any]) -> str:
    """What is wrong with `call`, empty if nothing is; any name will do where no tools were offered.

    What passes here may still be refused by the tool, what fails here is surely wrong.
    """
    arguments = read_call(call).arguments
    if arguments is None:
        return "arguments are no JSON object"
    if tools and call.name not in tools:
        return "no such tool"
    return "" if fits(arguments, tools.get(call.name, True)) else "arguments do not fit the tool's schema"
