"""What a span tells of a call, as the request and the response that the call must have had."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import as_text, dicts, parsed, string

CHAT = "/v1/chat/completions"

_ASKED = {
    "gen_ai.request.temperature": "temperature", "gen_ai.request.top_p": "top_p", "gen_ai.request.top_k": "top_k",
    "gen_ai.request.max_tokens": "max_tokens", "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty", "gen_ai.request.stop_sequences": "stop",
    "gen_ai.request.seed": "seed", "gen_ai.request.choice.count": "n",
}  # fmt: skip

Message = dict[str, Any]
"""A message of chat completions."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A call, in the JSON of its endpoint."""

    request: bytes
    response: bytes
    """Empty if no answer was captured."""
    endpoint: str = CHAT


def chat(
    messages: Sequence[Message],
    answers: Sequence[tuple[Message, str]],
    attributes: Mapping[str, Any],
    tools: Any,
    asked: Mapping[str, Any] | None = None,
) -> Said | None:
    """A chat call; None if nothing that anybody said was captured.

    Args:
        answers: each with the reason why it ended.
        attributes: the span's.
        tools: a list of definitions, in chat completions' form or flat.
        asked: further fields of the request.
    """
    if not any(map(_has_text, messages)):
        return None
    request: dict[str, Any] = {"model": model_of(attributes), "messages": messages}
    if defined := list(_definitions(tools)):
        request["tools"] = defined
    request |= {name: attributes[key] for key, name in _ASKED.items() if attributes.get(key) is not None}
    request |= asked or {}
    response: dict[str, Any] = {
        "id": string(attributes.get("gen_ai.response.id")),
        "object": "chat.completion",
        "model": string(attributes.get("gen_ai.response.model")) or model_of(attributes),
        "choices": [
            {"index": index, "message": answer, "finish_reason": reason}
            for index, (answer, reason) in enumerate(answers)
        ],
    }
    used = [attributes.get(f"gen_ai.usage.{kind}_tokens") for kind in ("input", "output")]
    if all(isinstance(number, int) for number in used):
        response["usage"] = {"prompt_tokens": used[0], "completion_tokens": used[1]}
    return Said(request=msgspec.json.encode(request), response=msgspec.json.encode(response) if answers else b"")


def message(role: Any, content: Any, calls: Any = (), call_id: Any = "") -> Message:
    """A message of a `role`, the user's if there is none.

    Args:
        content: text, parts or nothing; anything else becomes text.
        calls: have `id`, `name` and `arguments`, or chat completions' own form.
        call_id: of the call that the message answers.
    """
    content = content if content is None or isinstance(content, list) else as_text(content)
    made: Message = {"role": string(role) or "user", "content": content}
    for call in dicts(calls):
        called = call["function"] if isinstance(call.get("function"), dict) else call
        function = {"name": string(called.get("name")), "arguments": as_text(called.get("arguments"))}
        made.setdefault("tool_calls", []).append(
            {"id": string(call.get("id")), "type": "function", "function": function}
        )
    return made | ({"tool_call_id": call_id} if string(call_id) else {})


def model_of(attributes: Mapping[str, Any]) -> str:
    """The model that was asked for, else the one that answered."""
    names = ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
    return next((name for key in names if (name := string(attributes.get(key)))), "")


def decoded(found: Any) -> Any:
    """What stands in an attribute: out of its JSON if it is text, None if that is none."""
    return parsed(found) if isinstance(found, str | bytes) else found


def _definitions(tools: Any) -> Iterator[dict[str, Any]]:
    for tool in dicts(tools):
        if isinstance(tool.get("function"), dict):
            yield tool
        elif string(tool.get("name")):
            schema = tool.get("parameters") or tool.get("input_schema") or {}
            function = {"name": tool["name"], "description": string(tool.get("description")), "parameters": schema}
            yield {"type": "function", "function": function}


def _has_text(said: Message) -> bool:
    content = said["content"]
    return bool(content) if isinstance(content, str) else any(string(part.get("text")) for part in dicts(content))
