"""OpenInference: messages flattened into attributes, and beside them the bodies as they went over the wire.

    llm.input_messages.N.message.{role, content, contents.M..., tool_calls.K.tool_call..., tool_call_id}
    llm.tools.N.tool.json_schema, llm.invocation_parameters, input.value, output.value

The bodies say more, on endpoints other than chat completions all of it, so they go first. Frameworks put objects of
their own there, and limits on attributes cut them: then the flattened messages are read.
"""

import re
from collections.abc import Mapping
from typing import Any

from actors.dialects.conversation import as_text, dicts, parsed, string
from adapters.intake.otlp.said import CHAT, Message, Said, chat, decoded, message

_NUMBER = re.compile(r"[0-9]{1,6}")
_RESPONSES, _MESSAGES = "/v1/responses", "/v1/messages"

Tree = dict[str, Any]
"""Attributes by the parts of their names, which are numbers where there are several of a kind."""


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a span with `attributes` is a call of a model."""
    return attributes.get("openinference.span.kind") == "LLM"


def read_attributes(attributes: Mapping[str, Any]) -> Said | None:
    """The call in a span's attributes; None if its content was not captured."""
    return _bodies(attributes) or _flattened(attributes)


def _bodies(attributes: Mapping[str, Any]) -> Said | None:
    # They are kept as they stand, not as decoded: nothing that they hold is lost.
    request, response = (as_text(attributes.get(name)).encode() for name in ("input.value", "output.value"))
    asked, answered = parsed(request), parsed(response)
    endpoint = _endpoint(asked, answered) if isinstance(asked, dict) and isinstance(answered, dict) else ""
    return Said(request=request, response=response, endpoint=endpoint) if endpoint else None


def _endpoint(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> str:
    if any(said.get("content") for said in dicts(asked.get("messages"))):
        if dicts(answered.get("choices")):
            return CHAT
        if answered.get("type") == "message" and isinstance(answered.get("content"), list):
            return _MESSAGES
    return _RESPONSES if asked.get("input") and isinstance(answered.get("output"), list) else ""


def _flattened(attributes: Mapping[str, Any]) -> Said | None:
    tree = _tree(attributes)
    reason = string(attributes.get("llm.finish_reason"))
    asked = decoded(attributes.get("llm.invocation_parameters"))
    return chat(
        [_message(one) for one in _listed(tree, "input_messages", "message")],
        [(_message(one), reason) for one in _listed(tree, "output_messages", "message")],
        attributes,
        [decoded(tool.get("json_schema")) for tool in _listed(tree, "tools", "tool")],
        {name: value for name, value in asked.items() if name != "messages"} if isinstance(asked, dict) else None,
    )


def _message(flat: Tree) -> Message:
    parts = _listed(flat, "contents", "message_content")
    texts = [{"type": "text", "text": string(part.get("text"))} for part in parts if "text" in part]
    content = texts if parts and flat.get("content") is None else flat.get("content")
    return message(flat.get("role"), content, _listed(flat, "tool_calls", "tool_call"), flat.get("tool_call_id"))


def _tree(attributes: Mapping[str, Any]) -> Tree:
    """What is below `llm`."""
    tree: Tree = {}
    for name, value in attributes.items():
        kind, *path, last = name.split(".")
        place: Any = tree if kind == "llm" else None
        for part in path:
            place = place.setdefault(part, {}) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place.setdefault(last, value)
    return tree


def _listed(tree: Tree, name: str, inner: str) -> list[Tree]:
    """`tree[name][N][inner]` in the order of the numbers N, which may have gaps and need not begin at 0."""
    numbered = tree.get(name)
    if not isinstance(numbered, dict):
        return []
    entries = [numbered[number] for number in sorted(filter(_NUMBER.fullmatch, numbered), key=int)]
    return dicts([entry.get(inner) for entry in dicts(entries)])
