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
    """A raw message of vLLM's (`enable_response_messages`). Its plug-in lays the rest beside the ids."""

    tokens: list[int]
    logprobs: list[float] | None = None
    weight_versions: Any = None


_PIECES = msgspec.json.Decoder(list[_Piece] | None)
_MISSING = f"no token ids from {_WHERE}"


def _tokens(body: Fields) -> Tokens:
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


def responses() -> Dialect:
    """`/v1/responses`."""
    return Dialect(name="responses", merge=_merge, ended=_ended, tokens=_tokens)
