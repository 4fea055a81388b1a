"""`/v1/responses`: a list of output items, whose stream ends by repeating the whole response."""

from collections.abc import Sequence
from typing import Any

import msgspec

from adapters.intake.dialects.form import FIELDS, NULL, Dialect, Fields, Merged, Tokens, error_text, pack, value

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


def _merge(events: Sequence[bytes]) -> Merged:
    for data in reversed(events[-3:]):
        event = _EVENT.decode(data)
        if event.type in _TERMINAL and event.response != NULL:
            body = FIELDS.decode(event.response)
            failed = value(body, "error")
            return Merged(body, _ended(body), error_text(failed) if failed else "")
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


def _ended(body: Fields) -> bool:
    return value(body, "status") in _OVER


class _Piece(msgspec.Struct):
    tokens: list[int]


class _LogProb(msgspec.Struct):
    logprob: float


class _Part(msgspec.Struct):
    logprobs: list[_LogProb] | None = None


class _Item(msgspec.Struct):
    content: list[_Part] | None = None


class _Tokened(msgspec.Struct):
    """vLLM's raw messages (`enable_response_messages`) and log-probs (`include`), as far as they are asked for."""

    input_messages: list[_Piece] | None = None
    output_messages: list[_Piece] | None = None
    output: list[_Item] = []


def _tokens(body: Fields) -> Tokens:
    if not body.get("output_messages"):
        return Tokens(why=f"no token ids from {_WHERE}")
    found = msgspec.json.decode(msgspec.json.encode(body), type=_Tokened)
    if not found.input_messages or not found.output_messages:
        return Tokens(why=f"no token ids from {_WHERE}")
    ids = [token for piece in found.output_messages for token in piece.tokens]
    parts = [part for item in found.output for part in item.content or ()]
    if not any(part.logprobs for part in parts):
        return Tokens(why=f"no log-probs from {_WHERE}")
    # Reasoning and tool calls come without log-probs: then there are fewer of them than ids.
    logprobs = [entry.logprob for part in parts for entry in part.logprobs or ()]
    prompt = [token for piece in found.input_messages for token in piece.tokens]
    return pack(prompt, ids, logprobs)


def responses() -> Dialect:
    """`/v1/responses`."""
    return Dialect(name="responses", merge=_merge, ended=_ended, tokens=_tokens)
