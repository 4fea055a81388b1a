"""Conversations of `/v1/chat/completions` and `/v1/completions`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.messages import ToolCall
from actors.trajectories.dialects.conversation import Conversation, Item, Role, merged, text_of, tool_call

_ROLES: dict[Any, Role] = {
    "system": "system", "developer": "system", "assistant": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip


def read_chat(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    """A chat call."""
    tools = request.get("tools") or request.get("functions")
    answers = [(choice.get("message"), _cut(choice)) for choice in _dicts(response.get("choices"))]
    return Conversation(
        items=merged(_item(message) for message in _dicts(request.get("messages"))),
        answers=[_answer(answer, cut) for answer, cut in answers if isinstance(answer, dict) and answer],
        tools=msgspec.json.encode(tools) if tools else b"",
    )


def read_completion(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    """A text completion: the prompt is one thing that a user said, whatever the client's template put into it."""
    prompt = request.get("prompt")
    text = prompt if isinstance(prompt, str) else ""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        text = prompt[0]
    answers = [(choice.get("text"), _cut(choice)) for choice in _dicts(response.get("choices"))]
    return Conversation(
        items=[Item("user", text)] if prompt else [],
        answers=[Item("assistant", answer, cut=cut) for answer, cut in answers if isinstance(answer, str)],
    )


def _cut(choice: dict[str, Any]) -> bool:
    return choice.get("finish_reason") == "length"


def _item(message: dict[str, Any]) -> Item:
    said = message.get("role")
    role = _ROLES.get(said, "user") if isinstance(said, str) else "user"
    if role == "assistant":
        return _answer(message)
    call_id = message.get("tool_call_id") if role == "tool" else ""
    return Item(role, text_of(message.get("content")), (), call_id if isinstance(call_id, str) else "")


def _answer(message: dict[str, Any], cut: bool = False) -> Item:
    calls: list[ToolCall] = []
    for call in _dicts(message.get("tool_calls")):
        function = call.get("function")
        if isinstance(function, dict):
            calls.append(tool_call(function.get("name"), function.get("arguments"), call.get("id")))
        elif isinstance(custom := call.get("custom"), dict):
            calls.append(tool_call(custom.get("name"), custom.get("input"), call.get("id")))
    if isinstance(old := message.get("function_call"), dict):
        calls.append(tool_call(old.get("name"), old.get("arguments"), ""))
    text = text_of(message.get("content"))
    if not text and isinstance(refusal := message.get("refusal"), str):
        text = refusal
    return Item("assistant", text, tuple(calls), cut=cut)


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
