"""OpenInference: messages flattened into attributes, and beside them the bodies as they went over the wire.

    llm.input_messages.N.message.{role, content, contents.M..., tool_calls.K.tool_call..., tool_call_id}
    llm.tools.N.tool.json_schema, llm.invocation_parameters, input.value, output.value

The bodies say more, on endpoints other than chat completions all of it, so they go first. Frameworks put objects of
their own there, and limits on attributes cut them: then the flattened messages are read.
"""

import re
from collections.abc import Mapping
from typing import Any

from adapters.intake.otlp.said import CHAT, Said, as_text, chat, decoded, dicts, text, tool_calls, tool_definitions

_NUMBER = re.compile(r"[0-9]{1,6}")
_INPUT, _OUTPUT, _TOOLS = "llm.input_messages", "llm.output_messages", "llm.tools"
_RESPONSES, _MESSAGES = "/v1/responses", "/v1/messages"


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a span with `attributes` is a call of a model."""
    return attributes.get("openinference.span.kind") == "LLM"


def read_attributes(attributes: Mapping[str, Any]) -> Said | None:
    """The call in a span's attributes; None if its content was not captured."""
    return _bodies(attributes) or _flattened(attributes)


def _bodies(attributes: Mapping[str, Any]) -> Said | None:
    asked, answered = decoded(attributes.get("input.value")), decoded(attributes.get("output.value"))
    if not isinstance(asked, dict) or not isinstance(answered, dict):
        return None
    endpoint = _endpoint(asked, answered)
    if not endpoint:
        return None
    # As they stand, not as decoded: nothing that a body holds is lost.
    request, response = as_text(attributes["input.value"]), as_text(attributes["output.value"])
    return Said(request=request.encode(), response=response.encode(), endpoint=endpoint)


def _endpoint(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> str:
    messages = dicts(asked.get("messages"))
    if messages and any(message.get("content") for message in messages):
        if dicts(answered.get("choices")):
            return CHAT
        if answered.get("type") == "message" and isinstance(answered.get("content"), list):
            return _MESSAGES
    return _RESPONSES if asked.get("input") and isinstance(answered.get("output"), list) else ""


def _flattened(attributes: Mapping[str, Any]) -> Said | None:
    choices: list[dict[str, Any]] = []
    reason = text(attributes.get("llm.finish_reason"))
    for entry in _listed(attributes, _OUTPUT):
        choices.append({"index": len(choices), "message": _message(entry), "finish_reason": reason})
    schemas = [decoded(_inner(entry, "tool").get("json_schema")) for entry in _listed(attributes, _TOOLS)]
    asked = decoded(attributes.get("llm.invocation_parameters"))
    return chat(
        [_message(entry) for entry in _listed(attributes, _INPUT)],
        choices,
        attributes,
        tools=tool_definitions(schemas),
        asked={name: value for name, value in asked.items() if name != "messages"} if isinstance(asked, dict) else None,
    )


def _message(entry: Mapping[str, Any]) -> dict[str, Any]:
    flat = _inner(entry, "message")
    message: dict[str, Any] = {"role": text(flat.get("role")) or "user", "content": flat.get("content")}
    parts = [_inner(part, "message_content") for part in _in_order(flat.get("contents"))]
    if message["content"] is None and parts:
        message["content"] = [{"type": "text", "text": text(part.get("text"))} for part in parts if "text" in part]
    if calls := tool_calls([_inner(call, "tool_call") for call in _in_order(flat.get("tool_calls"))]):
        message["tool_calls"] = calls
    if call_id := text(flat.get("tool_call_id")):
        message["tool_call_id"] = call_id
    return message


def _listed(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The entries under `prefix`, in the order of their numbers, which may have gaps and need not begin at 0."""
    tree: dict[str, Any] = {}
    start = prefix + "."
    for name, value in attributes.items():
        if not name.startswith(start):
            continue
        *path, last = name[len(start) :].split(".")
        place = tree
        for part in path:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place.setdefault(last, value)
    return _in_order(tree)


def _in_order(numbered: Any) -> list[dict[str, Any]]:
    if not isinstance(numbered, dict):
        return []
    entries = [
        (int(key), entry) for key, entry in numbered.items() if _NUMBER.fullmatch(key) and isinstance(entry, dict)
    ]
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _inner(entry: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}
