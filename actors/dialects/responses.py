"""`/v1/responses`: a list of items in, a list of items out, whose stream ends by repeating the whole response."""

from collections.abc import Sequence
from typing import Any

import msgspec

from actors.dialects.conversation import dicts
from actors.dialects.form import FIELDS, NULL, UNKNOWN, Fields, Tokens, error_text, pack, value

_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ITEMS = ("response.output_item.added", "response.output_item.done")
_OVER = (None, "completed", "incomplete")
_GROWS = {
    "response.output_text.delta": ("output_text", "text"),
    "response.refusal.delta": ("refusal", "refusal"),
}
"""Type of a delta -> (type of the part of a message that it extends, the part's field)."""


class _Event(msgspec.Struct):
    type: str = ""
    response: msgspec.Raw = NULL
    item: dict[str, Any] | None = None
    output_index: int = 0
    delta: Any = None
    error: Any = None
    message: Any = None


_EVENT = msgspec.json.Decoder(_Event)


def merge(events: Sequence[bytes]) -> tuple[Any, str]:
    """The response that the last event repeats, whatever came before; of a stream that ended too early, what had
    come."""
    for event in map(_EVENT.decode, reversed(events[-3:])):
        if event.type in _TERMINAL and event.response != NULL:
            whole = FIELDS.decode(event.response)
            failed = value(whole, "error")
            return whole, error_text(failed) if failed else ""
    body: Fields | None = None
    items: dict[int, dict[str, Any]] = {}
    error = ""
    for event in map(_EVENT.decode, events):
        if event.type == "error" or event.error is not None:
            error = error or error_text(event.error or event.message)
        elif event.response != NULL and body is None:
            body = FIELDS.decode(event.response)
        elif event.type in _ITEMS and event.item is not None:
            items[event.output_index] = event.item
        elif isinstance(event.delta, str) and event.output_index in items:
            _extend(items[event.output_index], event.type, event.delta)
    if body is None:
        return None, error or UNKNOWN
    return {**body, "output": [items[index] for index in sorted(items)]}, error


def _extend(item: dict[str, Any], kind: str, delta: str) -> None:
    if kind == "response.function_call_arguments.delta":
        item["arguments"] = str(item.get("arguments") or "") + delta
    elif kind in _GROWS:
        part, field = _GROWS[kind]
        parts = item["content"] = dicts(item.get("content"))
        if not parts or parts[-1].get("type") != part:
            parts.append({"type": part})
        parts[-1][field] = str(parts[-1].get(field) or "") + delta


def ended(body: Fields) -> bool:
    return value(body, "status") in _OVER


class _Piece(msgspec.Struct):
    """A raw message of vLLM's (`enable_response_messages`). Its plug-in lays the rest beside the ids."""

    tokens: list[int]
    logprobs: list[float] | None = None
    weight_versions: Any = None


_PIECES = msgspec.json.Decoder(list[_Piece] | None)


def tokens(body: Fields) -> Tokens:
    try:
        asked, said = (_PIECES.decode(body.get(name, NULL)) for name in ("input_messages", "output_messages"))
    except msgspec.ValidationError:
        # Messages of another kind: a model whose conversations vLLM keeps in a format of its own (harmony).
        asked = said = None
    if not asked or not said:
        return Tokens(why_no_tokens="no token ids from /v1/responses")
    if len(asked) > 1 or len(said) > 1:
        return Tokens(why_no_tokens="several rounds in one call of /v1/responses")
    if said[0].logprobs is None:
        # Its engine runs without the plug-in.
        return Tokens(why_no_tokens="no log-probs from /v1/responses")
    return pack(asked[0].tokens, said[0].tokens, said[0].logprobs, said[0].weight_versions)
