"""What a span tells of a call, as the request and the response that the call must have had."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

CHAT = "/v1/chat/completions"

_ASKED = {
    "gen_ai.request.temperature": "temperature", "gen_ai.request.top_p": "top_p", "gen_ai.request.top_k": "top_k",
    "gen_ai.request.max_tokens": "max_tokens", "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty", "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.seed": "seed", "gen_ai.request.choice.count": "n",
}  # fmt: skip


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A call, in the JSON of its endpoint."""

    request: bytes
    response: bytes
    """Empty if no answer was captured."""
    endpoint: str = CHAT


def chat(
    messages: Sequence[Mapping[str, Any]],
    choices: Sequence[Mapping[str, Any]],
    attributes: Mapping[str, Any],
    *,
    tools: Sequence[Any] = (),
    asked: Mapping[str, Any] | None = None,
) -> Said | None:
    """A chat call of `messages`, `choices` and `tools` as chat completions has them, with the span's `attributes` and
    further fields of the request (`asked`); None if nothing that anybody said was captured."""
    if not any(_has_text(message) for message in messages):
        return None
    request: dict[str, Any] = {"model": model_of(attributes), "messages": messages}
    if tools:
        request["tools"] = tools
    request |= {name: attributes[key] for key, name in _ASKED.items() if attributes.get(key) is not None}
    request |= asked or {}
    response = b""
    if choices:
        body: dict[str, Any] = {
            "id": text(attributes.get("gen_ai.response.id")),
            "object": "chat.completion",
            "model": text(attributes.get("gen_ai.response.model")) or model_of(attributes),
            "choices": choices,
        }
        used = [attributes.get(f"gen_ai.usage.{kind}_tokens") for kind in ("input", "output")]
        if all(isinstance(number, int) for number in used):
            body["usage"] = {"prompt_tokens": used[0], "completion_tokens": used[1]}
        response = msgspec.json.encode(body)
    return Said(request=msgspec.json.encode(request), response=response)


def model_of(attributes: Mapping[str, Any]) -> str:
    """The model that was asked for, else the one that answered."""
    names = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
    return next((name for key in names if (name := text(attributes.get(key)))), "")


def tool_calls(calls: Any) -> list[dict[str, Any]]:
    """Tool calls with their arguments as text, from `id`, `name`, `arguments`, or from chat completions' own form."""
    found: list[dict[str, Any]] = []
    for call in dicts(calls):
        inner = call.get("function")
        named: Mapping[str, Any] = inner if isinstance(inner, dict) else call
        function = {"name": text(named.get("name")), "arguments": as_text(named.get("arguments"))}
        found.append({"id": text(call.get("id")), "type": "function", "function": function})
    return found


def tool_definitions(listed: Any) -> list[dict[str, Any]]:
    """Tool definitions in chat completions' form, from that or from a flat one."""
    found: list[dict[str, Any]] = []
    for tool in dicts(decoded(listed)):
        if isinstance(tool.get("function"), dict):
            found.append(tool)
        elif text(tool.get("name")):
            schema = tool.get("parameters") or tool.get("input_schema") or {}
            function = {"name": tool["name"], "description": text(tool.get("description")), "parameters": schema}
            found.append({"type": "function", "function": function})
    return found


def decoded(value: Any) -> Any:
    """`value`, out of its JSON if it is text; None if it is text and no JSON."""
    if not isinstance(value, str | bytes):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def as_text(value: Any) -> str:
    """Text as it is, everything else as JSON, nothing as an empty text."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def text(value: Any) -> str:
    """`value` if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def dicts(found: Any) -> list[dict[str, Any]]:
    """The objects in a list, of whatever else it may be made."""
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _has_text(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return bool(content)
    return any(text(part.get("text")) for part in dicts(content))
