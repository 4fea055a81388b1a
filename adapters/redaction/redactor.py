"""The way in: a record comes with what the wire carried and goes to the disk without its secrets.

    bodies of a call / Exchange / Feedback -> Redactor -> the same, redacted; the very same object if nothing was found

A body that cannot be searched (an encoding that nobody here can read) is left out as a whole rather than kept: what is
not known to be clean does not touch the disk.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from actors.messages import Exchange, Feedback
from actors.messages.traffic import Part
from adapters.redaction.finder import Finder, applied
from adapters.redaction.settings import RedactionSettings
from adapters.redaction.strict import Strict
from adapters.redaction.tokens import may_carry_tokens, take_out
from adapters.redaction.walk import Walk, pieces, unique

_LEFT_OUT = "unreadable"
"""Kind of the find for a body that was left out because it could not be searched."""
_TEXT = "text"
"""Kind of the find for a record whose texts are gone in strict mode."""
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
        clean = self._finder.clean
        self._strict = Strict(self._finder.placeholders, lambda name: clean([name])) if settings.strict else None
        self.strict = settings.strict
        """No free text is kept."""

    def bodies(self, request: bytes, response: bytes, error: str = "") -> Clean:
        """A call's bodies redacted, the response with its token ids: those that a find lies in are masked. In strict
        mode they stay as they are, for `message`. Raises nothing, whatever the bytes.
        """
        if not self._enabled or self.strict:
            return Clean(request, response, error)
        walk = Walk(self._finder)
        request, in_prompt = self._request(request, walk)
        response, in_response = self._response(response, walk, in_prompt)
        return Clean(request, response, walk.value(error), _parts(in_prompt, in_response), walk.finds)

    def message(self, exchange: Exchange) -> Exchange:
        """`exchange` redacted; the very same object if nothing was found. Of a part in which something was, no token
        ids are kept. Ids that join calls stay as they are.
        """
        if not self._enabled:
            return exchange
        if self._strict is not None:
            request = self._strict.data(exchange.request, model=exchange.status < 400)
            response = self._strict.data(exchange.response)
            return msgspec.structs.replace(
                self._strict.exchange(exchange), request=request, response=response, redacted=("prompt", "response"),
                finds=_sum(exchange.finds, {_TEXT: 1}),
            )  # fmt: skip
        clean = self.bodies(exchange.request, exchange.response, exchange.error)
        if not clean.finds:
            return exchange
        in_prompt, in_response = "prompt" in clean.redacted, "response" in clean.redacted
        return msgspec.structs.replace(
            exchange,
            request=clean.request,
            response=clean.response,
            error=clean.error,
            prompt_ids=b"" if in_prompt else exchange.prompt_ids,
            response_ids=b"" if in_response else exchange.response_ids,
            logprobs=b"" if in_response else exchange.logprobs,
            redacted=_parts(in_prompt or "prompt" in exchange.redacted, in_response or "response" in exchange.redacted),
            finds=_sum(exchange.finds, clean.finds),
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

    def _request(self, data: bytes, walk: Walk) -> tuple[bytes, bool]:
        """The request, and whether something was taken out of it."""
        try:
            json.loads(data, object_pairs_hook=unique)  # of two fields of one name only the last would be read
            body, encode = _decoded(data)
            body, found = walk.body(body)
        except _NO_JSON:
            if not data.startswith(_MULTIPART) and not _is_text(data):
                return _left_out(walk)  # packed in a way of its own
            text = _loose(data, walk)
            return text, text != data
        return (encode(body) if found else data), found

    def _response(self, data: bytes, walk: Walk, in_prompt: bool) -> tuple[bytes, bool]:
        """The response, and whether something was taken out of it."""
        if not data:
            return data, False
        walk.taken = {}
        try:
            body, encode = _decoded(data)
            if isinstance(body, list) and self._is_cut(body, walk):
                return _left_out(walk)
            body, found = walk.body(body)
            dropped = (found or in_prompt) and isinstance(body, dict | list) and take_out(
                body, self._finder, walk.taken, walk.known, prompt=in_prompt, response=found
            )  # fmt: skip
        except _NO_JSON:
            text = _loose(data, walk)
            if (text != data or in_prompt) and may_carry_tokens(data):
                return _left_out(walk)  # there are ids in it that decode to what was found, and no telling where
            return text, text != data
        return (encode(body) if found or dropped else data), found

    def _is_cut(self, events: list[Any], walk: Walk) -> bool:
        """Whether a find lies across the events of a stream that could not be merged."""
        return any(
            not any(edit.value in part for part in parts)
            for parts in pieces(events)
            for edit in self._finder.edits("".join(parts), walk.known)
        )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decoded(data: bytes) -> tuple[Any, Callable[[Any], bytes]]:
    """The JSON in `data`, and what encodes it.

    Raises:
        ValueError: there is none.
        RecursionError: it is too deep to be read.
    """
    try:
        return msgspec.json.decode(data), msgspec.json.encode
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Engines in Python write NaN and halves of surrogate pairs, which are no JSON, and read them.
        return json.loads(data), lambda body: json.dumps(body).encode()


def _loose(data: bytes, walk: Walk) -> bytes:
    """Bytes of no known form, as text: JSON that was cut off, a form, a file."""
    text = data.decode("utf-8", "surrogateescape")
    text = applied(text, walk.edits(text))
    if "\\" in text:
        text = _ESCAPED.sub(lambda match: _unescaped(match, walk), text)
    return text.encode("utf-8", "surrogateescape")


def _unescaped(match: re.Match[str], walk: Walk) -> str:
    """A string literal in what is no JSON as a whole."""
    try:
        inner = json.loads(f'"{match[1]}"', strict=False)
    except ValueError:
        return match[0]
    edits = walk.edits(inner)
    return json.dumps(applied(inner, edits)) if edits else match[0]


def _left_out(walk: Walk) -> tuple[bytes, bool]:
    walk.finds[_LEFT_OUT] = walk.finds.get(_LEFT_OUT, 0) + 1
    return b"", True


def _parts(prompt: bool, response: bool) -> tuple[Part, ...]:
    told: tuple[tuple[Part, bool], ...] = (("prompt", prompt), ("response", response))
    return tuple(part for part, redacted in told if redacted)


def _sum(before: dict[str, int], found: dict[str, int]) -> dict[str, int]:
    return dict(Counter(before) + Counter(found))
