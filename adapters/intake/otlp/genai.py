"""OpenTelemetry's GenAI conventions: messages in a span's attributes or in one event, or one event a message.

span    gen_ai.input.messages, gen_ai.output.messages: JSON text of [{role, parts: [{type, ...}], finish_reason}]
event   gen_ai.client.inference.operation.details: the same attributes as nested lists and maps
events  gen_ai.system.message, .user.message, .assistant.message, .tool.message, .choice: the conventions up to 1.36
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.intake.otlp.records import Log
from adapters.intake.otlp.said import Said, as_text, chat, decoded, dicts, text, tool_calls, tool_definitions

DETAILS = "gen_ai.client.inference.operation.details"
CHOICE = "gen_ai.choice"
ROLES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_CALLS = ("chat", "text_completion", "generate_content", "")
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_APART = ("tool_call", "tool_call_response", "reasoning")
_ENDS = {"tool_call": "tool_calls", "content_filter": "content_filter", "length": "length", "stop": "stop"}


def is_call(attributes: Mapping[str, Any]) -> bool:
    """Whether a span with `attributes` is a call of a model: agents, tools and embeddings have spans as well."""
    if not any(name in attributes for name in ("gen_ai.provider.name", "gen_ai.system", _INPUT)):
        return False
    return text(attributes.get("gen_ai.operation.name")) in _CALLS


def has_messages(attributes: Mapping[str, Any]) -> bool:
    """Whether the messages stand in `attributes`."""
    return _INPUT in attributes


def read_attributes(attributes: Mapping[str, Any]) -> Said | None:
    """The call in the attributes of a span or of the event of its details; None if its content was not captured."""
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


def read_events(events: Sequence[Log], attributes: Mapping[str, Any]) -> Said | None:
    """The call that the events of one span tell of, in order; None if its content was not captured.

    Args:
        attributes: of the span.
    """
    messages: list[dict[str, Any]] = []
    choices: list[dict[str, Any]] = []
    for event in events:
        body: Mapping[str, Any] = event.body if isinstance(event.body, dict) else {}
        if event.name == CHOICE:
            inner = body.get("message")
            answer = _legacy("assistant", inner if isinstance(inner, dict) else body)
            index = body.get("index")
            choices.append(
                {
                    "index": index if isinstance(index, int) else len(choices),
                    "message": answer,
                    "finish_reason": text(body.get("finish_reason")),
                }
            )
        elif event.name in ROLES:
            messages.append(_legacy(text(body.get("role")) or ROLES[event.name], body))
    return chat(messages, sorted(choices, key=lambda choice: choice["index"]), attributes)


def _messages(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One message of the conventions as those of chat completions: each result of a tool is one of its own."""
    role = text(message.get("role")) or "user"
    parts = _parts(message.get("parts"))
    if not parts and message.get("content") is not None:
        return [_legacy(role, message)]
    said = [
        _content(part) for part in parts if part.get("type") not in ("tool_call", "tool_call_response", "reasoning")
    ]
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
