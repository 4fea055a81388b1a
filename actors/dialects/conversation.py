"""The normal form of a call: who said what, which tools were called, what they gave. No dialect is left in it.

Clients rewrite what they send back: they re-serialise arguments, drop nulls, ids and reasoning, merge messages, or
write tool calls as text. `canonical` is what an answer and a client's echo of it still agree on.
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from actors.messages import ToolCall

Role = Literal["system", "user", "assistant", "tool"]

_FLATTENED = "Calling tools:\n["
"""How smolagents writes its tool calls into the text of the answer: a Python list follows."""
_MAX_FLATTENED = 50_000
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_EXACT = 2.0**53
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Item(msgspec.Struct, frozen=True):
    """One thing said. What the model said between two others is one item, however many messages carried it."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    """Role tool: the call that this is the result of."""
    refs: tuple[str, ...] = ()
    """Role assistant: ids that the engine gave to parts of the answer, other than to its calls."""
    cut: bool = False
    """Role assistant: the engine stopped at a limit of tokens, whatever was left to say."""


class Conversation(msgspec.Struct, frozen=True):
    """A request and its answer."""

    items: Sequence[Item]
    """Of the request."""
    answers: Sequence[Item] = ()
    """One a choice; empty if there is no answer that could be read."""
    tools: bytes = b""
    """JSON of the request's tool list."""


def merged(items: Iterable[Item]) -> list[Item]:
    """`items` with neighbouring answers in one, tool calls out of their text."""
    found: list[Item] = []
    for item in items:
        if item.role == "assistant":
            if _FLATTENED in item.text:
                item = _unflattened(item)
            if found and found[-1].role == "assistant":
                last = found.pop()
                text = f"{last.text}\n{item.text}" if last.text and item.text else last.text or item.text
                item = Item("assistant", text, last.calls + item.calls, "", last.refs + item.refs)
        found.append(item)
    return found


def canonical(item: Item) -> bytes:
    """The item as every client echoes it: no ids, no thoughts, no blanks that matter, arguments sorted. Of an answer
    without a word nothing: many clients leave it out."""
    text = item.text
    if item.role == "assistant" and "<think>" in text:
        text = _THOUGHT.sub("", text)
    blank = " ".join(text.split())
    if item.role == "assistant" and not (blank or item.calls or item.refs):
        return b""
    calls = [(call.name, _arguments(call.arguments)) for call in item.calls]
    try:
        return _ENCODE((item.role, blank, calls))
    except (OverflowError, ValueError, RecursionError):
        # Numbers that JSON may hold and the encoder does not.
        return _ENCODE((item.role, blank, [(call.name, call.arguments) for call in item.calls]))


def digest(*parts: bytes) -> str:
    """A short name for `parts`."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(part)
    return state.hexdigest()


def parsed(data: bytes | str, decode: Callable[[bytes | str], Any] = msgspec.json.decode) -> Any:
    """The JSON in `data`; None if it is none, or not of the form that `decode` wants."""
    try:
        return decode(data)
    except DECODE_ERRORS:
        return None


def dicts(found: Any) -> list[dict[str, Any]]:
    """The objects in a JSON list; empty if the value is not a list."""
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def string(found: Any) -> str:
    """`found` if it is text, else nothing."""
    return found if isinstance(found, str) else ""


def as_text(found: Any) -> str:
    """Text as it is, everything else as JSON, nothing as an empty text."""
    if isinstance(found, str):
        return found
    return "" if found is None else msgspec.json.encode(found).decode()


def tool_call(name: Any, arguments: Any, call_id: Any) -> ToolCall:
    """A call from what a dialect holds of it; arguments that are no text become JSON."""
    return ToolCall(str(name or ""), as_text(arguments), string(call_id))


def _arguments(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        found = msgspec.json.decode(text)
    except DECODE_ERRORS:
        return " ".join(text.split())
    # JavaScript writes 2.0 as 2.
    return _whole_numbers(found) if "." in text or "e" in text or "E" in text else found


def _whole_numbers(found: Any) -> Any:
    if isinstance(found, float) and found.is_integer() and abs(found) < _EXACT:
        return int(found)
    if isinstance(found, dict):
        return {key: _whole_numbers(inner) for key, inner in found.items()}
    return [_whole_numbers(inner) for inner in found] if isinstance(found, list) else found


def _unflattened(item: Item) -> Item:
    text, _, rest = item.text.partition(_FLATTENED)
    if len(rest) > _MAX_FLATTENED:
        return item
    try:
        listed = [(call["function"], call.get("id")) for call in ast.literal_eval("[" + rest.strip())]
        calls = tuple(tool_call(function.get("name"), function.get("arguments"), key) for function, key in listed)
        # A Python literal can hold what no JSON can.
        msgspec.json.encode(calls)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError, KeyError, AttributeError, OverflowError):
        return item
    return Item("assistant", text.rstrip(), item.calls + calls, "", item.refs)


_ENCODE = msgspec.json.Encoder(order="sorted").encode
