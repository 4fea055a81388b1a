"""The way in: a record comes with what the wire carried and goes to the disk without its secrets.

    bodies of a call / Exchange / Feedback -> Redactor -> the same, redacted; the very same object if nothing was found

A body that cannot be searched (an encoding that nobody here can read) is left out as a whole rather than kept: what is
not known to be clean does not touch the disk.
"""

import json
import re
from typing import Any

import msgspec

from actors.messages import Exchange, Feedback
from actors.messages.traffic import Part
from adapters.redaction.bodies import collect, masked_tokens, may_carry_tokens, pieces, redact_request, redact_response
from adapters.redaction.finder import Finder, applied
from adapters.redaction.placeholders import Placeholders
from adapters.redaction.scrub import Scrub
from adapters.redaction.settings import RedactionSettings, read_key, require_valid
from adapters.redaction.strict import Strict

_UNREADABLE = "unreadable"
"""Kind of the find for a body that was left out because it could not be searched."""
_TEXT = "text"
"""Kind of the find for a record whose texts are gone in strict mode."""
_MULTIPART = b"--"
_ESCAPED = re.compile(r'"((?:[^"\\]|\\.)*\\(?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)


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
        require_valid(settings)
        self._enabled = bool(settings.kinds or settings.patterns or settings.strict)
        placeholders = Placeholders(read_key(settings))
        self._finder = Finder(settings, placeholders)
        self._strict = Strict(placeholders, lambda name: self._finder.clean([name])) if settings.strict else None
        self.strict = settings.strict
        """No free text is kept."""

    def bodies(self, request: bytes, response: bytes, error: str = "") -> Clean:
        """A call's bodies redacted, the response with its token ids: those that a find lies in are masked. In strict
        mode they stay as they are, for `message`. Raises nothing, whatever the bytes.
        """
        if not self._enabled or self.strict:
            return Clean(request, response, error)
        scrub = Scrub(self._finder)
        request, in_prompt = self._request(request, scrub)
        response, in_response = self._response(response, scrub, in_prompt)
        return Clean(request, response, scrub.string(error), _parts(in_prompt, in_response), scrub.finds)

    def message(self, exchange: Exchange) -> Exchange:
        """`exchange` redacted; the very same object if nothing was found. Of a part in which something was, no token
        ids are kept. Ids that join calls stay as they are.
        """
        if not self._enabled:
            return exchange
        if self._strict is not None:
            request = _structure(exchange.request, self._strict, model=exchange.status < 400)
            response = _structure(exchange.response, self._strict)
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
        scrub = Scrub(self._finder)
        return scrub.string(text), scrub.finds

    def _request(self, data: bytes, scrub: Scrub) -> tuple[bytes, bool]:
        """The request, and whether something was taken out of it."""
        before = sum(scrub.finds.values())
        try:
            body, encode = _decoded(data)
            if self._is_clean(body, scrub):
                return data, False
            body = redact_request(body, scrub)
        except (_NoJson, RecursionError):
            if not data.startswith(_MULTIPART) and not _is_text(data):
                return _left_out(scrub)  # packed in a way of its own
            text = self._loose(data, scrub)
            return (text, True) if text != data else (data, False)
        return (encode(body), True) if sum(scrub.finds.values()) > before else (data, False)

    def _response(self, data: bytes, scrub: Scrub, in_prompt: bool) -> tuple[bytes, bool]:
        """The response, and whether something was taken out of it."""
        if not data:
            return data, False
        before, scrub.taken = sum(scrub.finds.values()), {}
        try:
            body, encode = _decoded(data)
            if isinstance(body, list) and self._is_cut(body, scrub):
                return _left_out(scrub)
            if not self._is_clean(body, scrub):
                body = redact_response(body, scrub)
            found = sum(scrub.finds.values()) > before
            dropped = (found or in_prompt) and masked_tokens(
                body, _only_choice(body), scrub, prompt=in_prompt, response=found
            )
        except (_NoJson, RecursionError):
            return self._unreadable(data, scrub, in_prompt)
        return (encode(body) if found or dropped else data), found

    def _unreadable(self, data: bytes, scrub: Scrub, in_prompt: bool) -> tuple[bytes, bool]:
        """A response that is cut off, or in a form of its own."""
        text = self._loose(data, scrub)
        if (text != data or in_prompt) and may_carry_tokens(data):
            return _left_out(scrub)  # there are ids in it that decode to what was found, and no telling where
        return (text, True) if text != data else (data, False)

    def _is_cut(self, events: list[Any], scrub: Scrub) -> bool:
        """Whether a find lies across the events of a stream that could not be merged."""
        for parts in pieces(events):
            whole = "".join(parts)
            for edit in self._finder.edits(whole, scrub.known):
                if not any(whole[edit.start : edit.end] in part for part in parts):
                    return True
        return False

    def _is_clean(self, body: Any, scrub: Scrub) -> bool:
        texts: list[str] = []
        try:
            return not collect(body, texts, self._finder) and self._finder.clean(texts, scrub.known)
        except RecursionError as error:
            raise _NoJson from error

    def _loose(self, data: bytes, scrub: Scrub) -> bytes:
        """Bytes of no known form, as text: JSON that was cut off, a form, a file."""
        text = scrub.string(data.decode("utf-8", "surrogateescape"))
        if "\\" in text:
            text = _ESCAPED.sub(lambda match: _unescaped(match, scrub), text)
        return text.encode("utf-8", "surrogateescape")


def _structure(data: bytes, strict: Strict, *, model: bool = True) -> bytes:
    """A body in strict mode, with the name of its model or without; nothing of one that is no JSON object."""
    try:
        body = _decoded(data)[0] if data else None
        if not isinstance(body, dict):
            return b""
        if not model:
            body.pop("model", None)
        return msgspec.json.encode(strict.body(body))
    except (_NoJson, RecursionError):
        return b""


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _only_choice(body: Any) -> list[dict[str, Any]]:
    """The choice of a response that has one."""
    choices = body.get("choices") if isinstance(body, dict) else None
    return choices if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict) else []


class _NoJson(Exception):
    """A body that is none, or too deep to be read."""


def _decoded(data: bytes) -> tuple[Any, Any]:
    """The JSON in `data`, and what encodes it.

    Raises:
        _NoJson: there is none.
    """
    try:
        return msgspec.json.decode(data), msgspec.json.encode
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError as error:
        raise _NoJson from error
    try:
        # Engines in Python write NaN and halves of surrogate pairs, which are no JSON, and read them.
        return json.loads(data), lambda body: json.dumps(body).encode()
    except (ValueError, RecursionError) as error:
        raise _NoJson from error


def _unescaped(match: re.Match[str], scrub: Scrub) -> str:
    """A string literal in what is no JSON as a whole."""
    try:
        inner = json.loads(f'"{match[1]}"', strict=False)
    except ValueError:
        return match[0]
    edits = scrub.edits(inner)
    if not edits:
        return match[0]
    scrub.count(edits)
    return json.dumps(applied(inner, edits))


def _left_out(scrub: Scrub) -> tuple[bytes, bool]:
    scrub.finds[_UNREADABLE] = scrub.finds.get(_UNREADABLE, 0) + 1
    return b"", True


def _parts(prompt: bool, response: bool) -> tuple[Part, ...]:
    told: tuple[tuple[Part, bool], ...] = (("prompt", prompt), ("response", response))
    return tuple(part for part, redacted in told if redacted)


def _sum(before: dict[str, int], found: dict[str, int]) -> dict[str, int]:
    return {
        kind: before.get(kind, 0) + found.get(kind, 0) for kind in (*before, *(k for k in found if k not in before))
    }
