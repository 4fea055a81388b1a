"""`/v1/responses`: a list of items in, a list of items out, whose stream ends by repeating the whole response."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import Conversation, Item, Role, as_json, dicts, merged, text_of, tool_call
from actors.dialects.form import FIELDS, NULL, Fields, Merged, Tokens, error_text, pack, value

_WHERE = "/v1/responses"
_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ITEMS = ("response.output_item.added", "response.output_item.done")
_OVER = (None, "completed", "incomplete")


class _Event(msgspec.Struct):
    type: str = ""
    response: msgspec.Raw = NULL
    item: dict[str, Any] | None = None
    output_index: int = 0
    delta: Any = None
    error: Any = None
    message: Any = None


_EVENT = msgspec.json.Decoder(_Event)


def merge(events: Sequence[bytes]) -> Merged:
    for data in reversed(events[-3:]):
        event = _EVENT.decode(data)
        if event.type in _TERMINAL and event.response != NULL:
            body = FIELDS.decode(event.response)
            failed = value(body, "error")
            return Merged(body, ended(body), error_text(failed) if failed else "")
    return _cut_off([_EVENT.decode(data) for data in events])


def _cut_off(events: Sequence[_Event]) -> Merged:
    """What had come when the stream ended too early: whole items, and the beginning of one."""
    body: dict[str, Any] | None = None
    items: dict[int, dict[str, Any]] = {}
    error = ""
    for event in events:
        if event.type == "error" or event.error is not None:
            error = error or error_text(event.error or event.message)
        elif event.response != NULL and body is None:
            body = msgspec.json.decode(event.response, type=dict[str, Any])
        elif event.type in _ITEMS and event.item is not None:
            items[event.output_index] = event.item
        elif isinstance(event.delta, str) and event.output_index in items:
            _extend(items[event.output_index], event.type, event.delta)
    if body is None:
        return Merged([], False, error or "a stream of an unknown form")
    return Merged({**body, "output": [items[index] for index in sorted(items)]}, False, error)


def _extend(item: dict[str, Any], kind: str, delta: str) -> None:
    if kind == "response.function_call_arguments.delta":
        item["arguments"] = str(item.get("arguments") or "") + delta
        return
    part = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}.get(kind)
    if part is None:
        return
    field = "text" if part == "output_text" else "refusal"
    content = item.get("content")
    if not isinstance(content, list):
        content = item["content"] = []
    if not content or not isinstance(content[-1], dict) or content[-1].get("type") != part:
        content.append({"type": part, field: ""})
    content[-1][field] = str(content[-1].get(field) or "") + delta


def ended(body: Fields) -> bool:
    return value(body, "status") in _OVER


class _Piece(msgspec.Struct):
    """A raw message of vLLM's (`enable_response_messages`). Its plug-in lays the rest beside the ids."""

    tokens: list[int]
    logprobs: list[float] | None = None
    weight_versions: Any = None


_PIECES = msgspec.json.Decoder(list[_Piece] | None)
_MISSING = f"no token ids from {_WHERE}"


def tokens(body: Fields) -> Tokens:
    try:
        asked, said = (_PIECES.decode(body.get(name, NULL)) for name in ("input_messages", "output_messages"))
    except msgspec.ValidationError:
        # Messages of another kind: a model whose conversations vLLM keeps in a format of its own (harmony).
        return Tokens(why=_MISSING)
    if not asked or not said:
        return Tokens(why=_MISSING)
    if len(asked) > 1 or len(said) > 1:
        return Tokens(why=f"several rounds in one call of {_WHERE}")
    if said[0].logprobs is None:
        # Its engine runs without the plug-in.
        return Tokens(why=f"no log-probs from {_WHERE}")
    return pack(asked[0].tokens, said[0].tokens, said[0].logprobs, said[0].weight_versions)


_ROLES: dict[Any, Role] = {"assistant": "assistant", "system": "system", "developer": "system"}
_SILENT = ("reasoning", "compaction")
"""Items that clients keep or leave out as they like."""


def read(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    said = request.get("input")
    items = [Item("user", said)] if isinstance(said, str) else _items(said)
    if isinstance(instructions := request.get("instructions"), str) and instructions:
        items.insert(0, Item("system", instructions))
    output = response.get("output")
    answers = merged(item for item in _items(output) if item.role == "assistant")[:1]
    if isinstance(output, list) and not answers:
        # The model said nothing, or thought and said nothing: that is an answer, as it is in a chat.
        answers = [Item("assistant")]
    return Conversation(
        items=merged(items),
        answers=[msgspec.structs.replace(answer, cut=_cut(response)) for answer in answers],
        tools=as_json(request.get("tools")),
    )


def _cut(response: Mapping[str, Any]) -> bool:
    details = response.get("incomplete_details")
    return isinstance(details, Mapping) and details.get("reason") == "max_output_tokens"


def _items(listed: Any) -> list[Item]:
    return [item for entry in dicts(listed) if (item := _item(entry)) is not None]


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
        name = entry.get("name") or kind.removesuffix("_call")
        return Item("assistant", "", (tool_call(name, arguments, call_id),), "", refs)
    return None


def _refusal(content: Any) -> str:
    parts = (part.get("refusal") for part in dicts(content))
    return "\n".join(part for part in parts if isinstance(part, str))


def _ref(found: Any) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) and found else ()
