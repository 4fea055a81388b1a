"""OpenTelemetry's GenAI conventions: messages in a span's attributes.

gen_ai.input.messages, gen_ai.output.messages: JSON text of [{role, parts: [{type, ...}], finish_reason}]
"""

from collections.abc import Mapping
from typing import Any

from adapters.intake.otlp.said import Said, as_text, chat, decoded, dicts, text, tool_calls, tool_definitions

_CALLS = ("chat", "text_completion", "generate_content", "")
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_APART = ("tool_call", "tool_call_response", "reasoning")
_ENDS = {"tool_call": "tool_calls", "content_filter": "content_filter", "length": "length", "stop": "stop"}


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a span with `attributes` is a call of a model: agents, tools and embeddings have spans as well."""
    if not any(name in attributes for name in ("gen_ai.provider.name", "gen_ai.system", _INPUT)):
        return False
    return text(attributes.get("gen_ai.operation.name")) in _CALLS


def read_attributes(attributes: Mapping[str, Any]) -> Said | None:
    """The call in a span's attributes; None if its content was not captured."""
    messages: list[dict[str, Any]] = []
    if instructions := _parts(decoded(attributes.get("gen_ai.system_instructions"))):
        messages += _messages({"role": "system", "parts": instructions})
    for message in dicts(decoded(attributes.get(_INPUT))):
        messages += _messages(message)
    choices: list[dict[str, Any]] = []
    for message in dicts(decoded(attributes.get(_OUTPUT))):
        for answer in _messages({"role": "assistant", **message})[:1]:
            reason = text(message.get("finish_reason"))
            choices.append({"index": len(choices), "message": answer, "finish_reason": _ENDS.get(reason, reason)})
    tools = tool_definitions(attributes.get("gen_ai.tool.definitions"))
    return chat(messages, choices, attributes, tools=tools)


def _messages(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One message of the conventions as those of chat completions: each result of a tool is one of its own."""
    role = text(message.get("role")) or "user"
    parts = _parts(message.get("parts"))
    if not parts and message.get("content") is not None:
        return [_legacy(role, message)]
    said = [_content(part) for part in parts if part.get("type") not in _APART]
    calls = tool_calls([part for part in parts if part.get("type") == "tool_call"])
    thoughts = [text(part.get("content")) for part in parts if part.get("type") == "reasoning"]
    results = [_result(part) for part in parts if part.get("type") == "tool_call_response"]
    if results and not (said or calls):
        return results
    whole: dict[str, Any] = {"role": role, "content": _joined(said)}
    if calls:
        whole["tool_calls"] = calls
    if thoughts:
        whole["reasoning_content"] = "\n".join(thoughts)
    return [*results, whole]


def _parts(found: Any) -> list[dict[str, Any]]:
    listed = found if isinstance(found, list) else []
    return dicts([{"type": "text", "content": part} if isinstance(part, str) else part for part in listed])


def _content(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") in ("text", None):
        return {"type": "text", "text": text(part.get("content"))}
    # Pictures and files: that there was one is worth knowing, its bytes are not.
    return {name: value for name, value in part.items() if name not in ("content", "data")}


def _joined(parts: list[dict[str, Any]]) -> Any:
    if not parts:
        return None
    return parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    result = part.get("response", part.get("result"))
    return {"role": "tool", "tool_call_id": text(part.get("id")), "content": as_text(result)}


def _legacy(role: str, body: Mapping[str, Any]) -> dict[str, Any]:
    content = body.get("content")
    if not isinstance(content, list):
        content = None if content is None else as_text(content)
    message: dict[str, Any] = {"role": role, "content": content}
    if calls := tool_calls(body.get("tool_calls")):
        message["tool_calls"] = calls
    if role == "tool":
        message["tool_call_id"] = text(body.get("id")) or text(body.get("tool_call_id"))
    return message
