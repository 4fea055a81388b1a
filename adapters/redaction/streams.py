"""Server-sent events: a secret comes in pieces, so the pieces of one text are joined, searched, and cut again.

What belongs together is told by where it stands, not by the dialect: strings under `delta` (and `text` of a choice) at
the same place of the same choice, item or content block. All other strings of an event are whole.
"""

import re
from typing import Any

import msgspec

from adapters.redaction.bodies import (
    FREE,
    IDS,
    UNREAD,
    collect,
    masked_tokens,
    may_carry_tokens,
    redact,
    redact_response,
)
from adapters.redaction.finder import Edit, Finder
from adapters.redaction.scrub import Scrub
from adapters.redaction.strict import Strict

_PLACE = ("type", "output_index", "content_index", "summary_index", "index", "item_id")
_BLANK_LINE = re.compile(rb"(\r\n\r\n|\n\n|\r\r)")
_DATA_LINE = re.compile(rb"^data: ?([^\r\n]*)(?:\r\n|\r|\n|\Z)", re.MULTILINE)
_NOTHING = object()
_DONE = b"[DONE]"


class _Event(msgspec.Struct):
    raw: bytes
    """All of it, the blank line at its end included."""
    data: bytes
    value: Any
    """What `data` is in JSON; `_NOTHING` if it is none."""
    other: bytes = b""
    """Its lines that are no data: names, ids, comments."""


class Stream:
    """The events of one response: read once, redacted in place, written again."""

    def __init__(self, body: bytes) -> None:
        self._events = _events(body)
        self._channels: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
        """Holder and key of each piece, by the place of the text that they make up."""
        self._whole: list[tuple[Any, Any]] = []
        self._responses: list[dict[str, Any]] = []
        """Events of /v1/responses that repeat all of the response."""
        for event in self._events:
            if isinstance(event.value, dict):
                self._read(event.value)

    def collect(self, into: list[str], finder: Finder) -> bool:
        """Gather what is to be searched; returns whether something is to go by its name or number alone."""
        named = False
        for pieces in self._channels.values():
            named |= collect("".join([holder[key] for holder, key in pieces]), into, finder)
        for holder, key in self._whole:
            named |= collect(holder[key], into, finder, key if type(key) is str else "", type(holder[key]) is dict)
        for event in self._responses:
            named |= collect(event["response"], into, finder)
        for event in self._events:
            if event.other:
                into.append(_text(event.other))
            if event.value is _NOTHING and event.data != _DONE:
                into.append(_text(event.data))
            elif not isinstance(event.value, dict):
                named |= event.value is not _NOTHING and collect(event.value, into, finder)
        return named

    def redact(self, scrub: Scrub) -> None:
        """Take out what is found."""
        asked = scrub.fork()
        answers: dict[Any, list[list[tuple[Any, Any]]]] = {}
        for place, pieces in self._channels.items():
            answers.setdefault(place[1] if place[0] == "choices" else "", []).append(pieces)
        for channels in answers.values():
            answer, known = asked.fork(), -1
            while len(answer.known) > known:
                known = len(answer.known)
                for pieces in channels:
                    _redact_pieces(pieces, answer)
            scrub.known.update(answer.known)
        for event in self._responses:
            event["response"] = redact_response(event["response"], asked.fork())
        for holder, key in self._whole:
            value = holder[key]
            holder[key] = redact(value, scrub, key if isinstance(key, str) else "", isinstance(value, dict))
        for event in self._events:
            if event.other or not isinstance(event.value, dict):
                _redact_raw(event, scrub)

    def strip(self, strict: Strict) -> None:
        """Keep the structure alone: the first piece of a text gets its placeholder, the others get nothing."""
        done: dict[tuple[int, str], str] = {}
        for place, pieces in self._channels.items():
            whole = strict.piece("".join([holder[key] for holder, key in pieces]), place[-1], place[1] if place else "")
            for number, (holder, key) in enumerate(pieces):
                done[id(holder), key] = "" if number else whole
        for event in self._events:
            if isinstance(event.value, dict):
                event.other, event.value = b"", strict.body(event.value, done)
                event.raw = _written(event, msgspec.json.encode(event.value))
            elif event.data == _DONE:
                event.other, event.raw = b"", _written(_Event(b"", _DONE, _NOTHING), _DONE)
            else:
                event.other, event.data, event.raw = b"", b"", b""

    def mask_tokens(self, scrub: Scrub, *, prompt: bool, response: bool) -> None:
        """As `bodies.masked_tokens`, of all events."""
        values = [event.value for event in self._events]
        masked_tokens(values, self._only_choice(), scrub, prompt=prompt, response=response)
        for event in self._events:
            if event.value is _NOTHING and may_carry_tokens(event.data):
                event.data, event.raw = b"", b""  # cut off in the middle: nobody can read it, but for its ids

    def encode(self) -> bytes:
        """The stream as it is now. Events that did not change keep their bytes."""
        return b"".join(
            event.raw
            if not isinstance(event.value, dict) or event.value == _decoded(event.data)
            else _written(event, msgspec.json.encode(event.value))
            for event in self._events
        )

    def _only_choice(self) -> list[dict[str, Any]]:
        """The choices of all events, if they are of one answer."""
        found: list[dict[str, Any]] = []
        for event in self._events:
            choices = event.value.get("choices") if isinstance(event.value, dict) else None
            found += (
                [choice for choice in choices or () if isinstance(choice, dict)] if isinstance(choices, list) else []
            )
        return found if len({choice.get("index", 0) for choice in found}) == 1 else []

    def _read(self, event: dict[str, Any]) -> None:
        if isinstance(event.get("response"), dict) and str(event.get("type")).startswith("response."):
            self._responses.append(event)
            event = {name: part for name, part in event.items() if name != "response"}
        place = () if "choices" in event else ("", *(str(event.get(name, "")) for name in _PLACE))
        self._visit(event, place, False)

    def _visit(self, holder: dict[str, Any], place: tuple[Any, ...], in_delta: bool) -> None:
        for key, part in holder.items():
            kind = type(part)
            if kind is str:
                if key in IDS:
                    continue
                if in_delta or key == "delta" or (key == "text" and place and place[0] == "choices"):
                    if part:
                        self._channels.setdefault((*place, key), []).append((holder, key))
                else:
                    self._whole.append((holder, key))
            elif key in UNREAD:
                continue
            elif kind is dict and key in FREE:
                self._whole.append((holder, key))
            elif kind is dict:
                self._visit(part, (*place, key), in_delta or key == "delta")
            elif kind is list:
                for position, one in enumerate(part):
                    if type(one) is dict:
                        index = one.get("index", position)
                        self._visit(one, (*place, key, str(index)), in_delta or key == "delta")
                    elif type(one) is str or type(one) is int:
                        self._whole.append((part, position))
            elif kind is int:
                self._whole.append((holder, key))


def cut(texts: list[str], edits: list[Edit]) -> list[str]:
    """`texts` after `edits`, whose positions are those of all texts joined: the first piece of a find gets its
    placeholder, the others lose their part of it."""
    found: list[str] = []
    todo, offset, at = 0, 0, 0
    for text in texts:
        end, parts = offset + len(text), list[str]()
        at = max(at, offset)
        while todo < len(edits) and edits[todo].start < end:
            parts += (text[at - offset : edits[todo].start - offset], edits[todo].placeholder)
            at = edits[todo].end
            todo += 1
        if at < end:
            parts.append(text[at - offset :])
        found.append("".join(parts))
        offset = end
    return found


def _redact_pieces(pieces: list[tuple[Any, Any]], scrub: Scrub) -> None:
    texts = [holder[key] for holder, key in pieces]
    edits = scrub.edits("".join(texts))
    scrub.count(edits)
    if edits:
        for (holder, key), text in zip(pieces, cut(texts, edits), strict=True):
            holder[key] = text


def _redact_raw(event: _Event, scrub: Scrub) -> None:
    """An event whose data is no object, or that has more lines than its data."""
    data = event.data
    if not isinstance(event.value, dict) and data != _DONE:
        data = scrub.string(_text(data)).encode("utf-8", "surrogateescape")
    other = scrub.string(_text(event.other)).encode("utf-8", "surrogateescape")
    if data != event.data or other != event.other:
        event.data, event.other = data, other
        event.raw = _written(event, data)


def _written(event: _Event, data: bytes) -> bytes:
    return event.other + b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"


def _events(body: bytes) -> list[_Event]:
    events: list[_Event] = []
    for block, end in _blocks(body):
        if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
            events.append(_Event(block + end, block[6:], _NOTHING))
        elif block or end:
            data = b"\n".join(_DATA_LINE.findall(block))
            other = _DATA_LINE.sub(b"", block)
            events.append(
                _Event(block + end, data, _NOTHING, other + b"\n" if other and other[-1:] not in b"\r\n" else other)
            )
    held = [event for event in events if event.data and event.data != _DONE]
    try:
        # All at once: a third of the time that one by one takes.
        values = msgspec.json.decode(b"[" + b",".join([event.data for event in held]) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        values = []
    if len(values) != len(held):
        values = [_decoded(event.data) for event in held]
    for event, value in zip(held, values, strict=True):
        event.value = value
    return events


def _blocks(body: bytes) -> list[tuple[bytes, bytes]]:
    """Each event and the blank line after it."""
    if b"\r" not in body:  # as all engines write it
        blocks = body.split(b"\n\n")
        return [*((block, b"\n\n") for block in blocks[:-1]), (blocks[-1], b"")]
    parts = [*_BLANK_LINE.split(body), b""]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOTHING


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
