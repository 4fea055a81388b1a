"""Conversations of `/v1/responses`: a list of items in, a list of items out."""

from collections.abc import Mapping
from typing import Any

import msgspec

from actors.trajectories.dialects.conversation import Conversation, Item, Role, merged, text_of, tool_call

_ROLES: dict[Any, Role] = {"assistant": "assistant", "system": "system", "developer": "system"}
_SILENT = ("reasoning", "compaction")
"""Items that clients keep or leave out as they like."""


def read_responses(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    """A call of the responses API."""
    said = request.get("input")
    items = [Item("user", said)] if isinstance(said, str) else _items(said)
    if isinstance(instructions := request.get("instructions"), str) and instructions:
        items.insert(0, Item("system", instructions))
    output = response.get("output")
    answers = merged(item for item in _items(output) if item.role == "assistant")[:1]
    if isinstance(output, list) and not answers:
        # The model said nothing, or thought and said nothing: that is an answer, as it is in a chat.
        answers = [Item("assistant")]
    tools = request.get("tools")
    return Conversation(
        items=merged(items),
        answers=[msgspec.structs.replace(answer, cut=_cut(response)) for answer in answers],
        tools=msgspec.json.encode(tools) if tools else b"",
    )


def _cut(response: Mapping[str, Any]) -> bool:
    details = response.get("incomplete_details")
    return isinstance(details, Mapping) and details.get("reason") == "max_output_tokens"


def _items(listed: Any) -> list[Item]:
    found: list[Item] = []
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and (item := _item(entry)) is not None:
            found.append(item)
    return found


def _item(entry: dict[str, Any]) -> Item | None:
    kind = entry.get("type")
    kind = kind if isinstance(kind, str) else "message"
    if kind in _SILENT:
        return None
    refs = _ref(entry.get("id"))
    if kind == "message":
        said = entry.get("role")
        role = _ROLES.get(said, "user") if isinstance(said, str) else "user"
        text = text_of(entry.get("content"))
        if role == "assistant":
            return Item("assistant", text or _refusal(entry.get("content")), (), "", refs)
        return Item(role, text)
    if kind == "item_reference":
        # The server keeps the answer: the client sends its id alone.
        return Item("assistant", "", (), "", refs)
    call_id = entry.get("call_id")
    if kind.endswith("_output"):
        output = entry.get("output")
        text = text_of(output) or (msgspec.json.encode(output).decode() if isinstance(output, dict) else "")
        return Item("tool", text, (), call_id if isinstance(call_id, str) else "")
    if kind.endswith("_call"):
        arguments = entry.get("arguments", entry.get("input", entry.get("action")))
        return Item("assistant", "", (tool_call(entry.get("name") or kind, arguments, call_id),), "", refs)
    return None


def _refusal(content: Any) -> str:
    parts = [part.get("refusal") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part for part in parts if isinstance(part, str))


def _ref(found: Any) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) and found else ()
