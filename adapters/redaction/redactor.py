"""The way in: a record comes with what the wire carried and goes to the disk without its secrets.

    bodies of a call / Exchange / Feedback -> Redactor -> the same, redacted; the very same object if nothing was found

A body that cannot be searched (an encoding that nobody here can read) is left out as a whole rather than kept: what is
not known to be clean does not touch the disk.
"""

import json
import re
from collections import Counter
from typing import Any

import msgspec

from actors.messages import Exchange, Feedback
from actors.messages.traffic import Part
from adapters.redaction.finder import Finder, applied
from adapters.redaction.settings import RedactionSettings
from adapters.redaction.strict import Strict
from adapters.redaction.tokens import may_carry_tokens, take_out
from adapters.redaction.walk import Walk, unique

_LEFT_OUT = "unreadable"
"""Kind of the find for a body that was left out because it could not be searched."""
_TEXT = "text"
"""Kind of the find for a record whose texts are gone in strict mode."""
_PACKED: dict[Part, tuple[str, ...]] = {"prompt": ("prompt_ids",), "response": ("response_ids", "logprobs")}
"""Arrays of an exchange that go with a find in a part of it."""
_MULTIPART = b"--"
_ESCAPED = re.compile(r'"((?:[^"\\]|\\.)*\\(?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)
_NO_JSON = (ValueError, RecursionError)


class Clean(msgspec.Struct, frozen=True):
    """The bodies of a call, redacted."""

    request: bytes
    response: bytes
    error: str
    redacted: tuple[Part, ...] = ()
    """Where something was taken out."""
    finds: dict[str, int] = {}
    """How many finds of each kind were taken out."""


class Redactor:
    """Redacts records. Holds no state between them: the same record always gives the same."""

    def __init__(self, settings: RedactionSettings) -> None:
        """
        Raises:
            InvalidRedaction: names the setting and what to write instead.
        """
        self._enabled = bool(settings.kinds or settings.patterns or settings.strict)
        self._finder = Finder(settings)
        self._strict = Strict(self._finder) if settings.strict else None
        self.strict = settings.strict
        """No free text is kept."""

    def bodies(self, request: bytes, response: bytes, error: str = "") -> Clean:
        """A call's bodies redacted, the response with its token ids: those that a find lies in are masked. In strict
        mode they stay as they are, for `message`. Raises nothing, whatever the bytes.
        """
        if not self._enabled or self.strict:
            return Clean(request, response, error)
        walk = Walk(self._finder)
        request, in_prompt = _request(request, walk)
        response, in_response = _response(response, walk, in_prompt)
        found = {"prompt": in_prompt, "response": in_response}
        redacted: tuple[Part, ...] = tuple(part for part in _PACKED if found[part])
        return Clean(request, response, walk.value(error), redacted, walk.finds)

    def message(self, exchange: Exchange) -> Exchange:
        """`exchange` redacted; the very same object if nothing was found. Of a part in which something was, no token
        ids are kept. Ids that join calls stay as they are.
        """
        if not self._enabled:
            return exchange
        if self._strict is not None:
            finds = _sum(exchange.finds, {_TEXT: 1})
            return msgspec.structs.replace(self._strict.exchange(exchange), redacted=tuple(_PACKED), finds=finds)
        clean = self.bodies(exchange.request, exchange.response, exchange.error)
        if not clean.finds:
            return exchange
        return msgspec.structs.replace(
            exchange,
            request=clean.request,
            response=clean.response,
            error=clean.error,
            redacted=tuple(part for part in _PACKED if part in (*clean.redacted, *exchange.redacted)),
            finds=_sum(exchange.finds, clean.finds),
            **{name: b"" for part in clean.redacted for name in _PACKED[part]},
        )

    def feedback(self, feedback: Feedback) -> Feedback:
        """`feedback` with its text redacted."""
        if self._strict is not None:
            return self._strict.feedback(feedback)
        text, found = self.text(feedback.text)
        return msgspec.structs.replace(feedback, text=text) if found else feedback

    def text(self, text: str) -> tuple[str, dict[str, int]]:
        """`text` redacted, and how many finds of each kind were taken out of it."""
        if not self._enabled:
            return text, {}
        if self._strict is not None:
            return self._strict.text(text), {_TEXT: 1} if text else {}
        walk = Walk(self._finder)
        return walk.value(text), walk.finds


def _request(data: bytes, walk: Walk) -> tuple[bytes, bool]:
    """The request, and whether something was taken out of it."""
    try:
        # Of two fields of one name only the last would be read.
        body, found = walk.body(json.loads(data, object_pairs_hook=unique))
    except _NO_JSON:
        is_text = data.decode("utf-8", "ignore").encode() == data
        return _loose(data, walk) if is_text or data.startswith(_MULTIPART) else _left_out(walk)
    return (_encoded(body) if found else data), found


def _response(data: bytes, walk: Walk, in_prompt: bool) -> tuple[bytes, bool]:
    """The response, and whether something was taken out of it."""
    if not data:
        return data, False
    walk.taken = {}
    try:
        body = _decoded(data)
        if isinstance(body, list) and walk.is_cut(body):
            return _left_out(walk)
        body, found = walk.body(body)
    except _NO_JSON:
        text, found = _loose(data, walk)
        # There would be ids in it that decode to what was found, and no telling where.
        return _left_out(walk) if (found or in_prompt) and may_carry_tokens(data) else (text, found)
    dropped = (found or in_prompt) and take_out(body, walk, prompt=in_prompt, response=found)
    return (_encoded(body) if found or dropped else data), found


def _decoded(data: bytes) -> Any:
    """
    Raises:
        ValueError: there is no JSON in `data`.
        RecursionError: it is too deep to be read.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)  # engines in Python write NaN and halves of surrogate pairs, which are no JSON


def _encoded(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(body).encode()


def _loose(data: bytes, walk: Walk) -> tuple[bytes, bool]:
    """Bytes of no known form, as text: JSON that was cut off, a form, a file; and whether something was taken out."""
    text = data.decode("utf-8", "surrogateescape")
    kept = applied(text, walk.edits(text))
    if "\\" in kept:
        kept = _ESCAPED.sub(lambda match: _unescaped(match, walk), kept)
    return kept.encode("utf-8", "surrogateescape"), kept != text


def _unescaped(match: re.Match[str], walk: Walk) -> str:
    """A string literal in what is no JSON as a whole."""
    try:
        inner = json.loads(f'"{match[1]}"', strict=False)
    except ValueError:
        return match[0]
    kept = walk.value(inner)
    return json.dumps(kept) if kept != inner else match[0]


def _left_out(walk: Walk) -> tuple[bytes, bool]:
    walk.finds[_LEFT_OUT] = walk.finds.get(_LEFT_OUT, 0) + 1
    return b"", True


def _sum(before: dict[str, int], found: dict[str, int]) -> dict[str, int]:
    return dict(Counter(before) + Counter(found))
