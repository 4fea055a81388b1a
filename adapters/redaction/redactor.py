"""The way in: a record comes with what the wire carried and goes to the disk without its secrets.

    RawExchange / Exchange / Feedback -> Redactor -> the same, redacted; the very same object if nothing was found

A body that cannot be searched (an encoding that nobody here can read) is left out as a whole rather than kept: what is
not known to be clean does not touch the disk.
"""

import json
import re
import zlib
from typing import Any

import msgspec

from actors.messages import Exchange, Feedback
from actors.messages.spool import RawExchange
from actors.messages.traffic import Part
from adapters.redaction.bodies import collect, masked_tokens, may_carry_tokens, redact_request, redact_response
from adapters.redaction.finder import Finder, applied
from adapters.redaction.placeholders import Placeholders
from adapters.redaction.scrub import Scrub
from adapters.redaction.settings import RedactionSettings, read_key, require_valid
from adapters.redaction.streams import Stream
from adapters.redaction.strict import Strict

_MAX_INFLATED = 16 << 20
"""Of a body, as large as one that is captured may be; above it, it is left out."""
_UNREADABLE = "unreadable"
"""Kind of the find for a body that was left out because it could not be searched."""
_TEXT = "text"
"""Kind of the find for a record whose texts are gone in strict mode."""
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""How gzip and zlib begin (RFC 1952, RFC 1950)."""
_MULTIPART = b"--"
_ESCAPED = re.compile(r'"((?:[^"\\]|\\.)*\\(?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)


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

    def exchange(self, raw: RawExchange) -> RawExchange:
        """`raw` redacted. Ids that join calls stay as they are. Raises nothing, whatever the bytes."""
        if not self._enabled:
            return raw
        if self._strict is not None:
            return self._stripped(raw, self._strict)
        scrub = Scrub(self._finder)
        request, in_prompt = self._request(raw.request, scrub)
        response, in_response = self._response(raw, scrub, in_prompt)
        if not scrub.finds and request is raw.request and response is raw.response:
            return raw
        # What is written anew is no longer compressed.
        encoding = raw.content_encoding if response is raw.response else ""
        return msgspec.structs.replace(
            raw,
            request=request,
            response=response,
            content_encoding=encoding,
            redacted=_parts(raw.redacted, in_prompt, in_response),
            finds=_sum(raw.finds, scrub.finds),
        )

    def message(self, exchange: Exchange) -> Exchange:
        """As `exchange`, of a record whose response has been read already."""
        if not self._enabled:
            return exchange
        if self._strict is not None:
            request = _structure(exchange.request, self._strict, model=exchange.status < 400)
            response = _structure(exchange.response, self._strict)
            return msgspec.structs.replace(
                self._strict.exchange(exchange), request=request, response=response, redacted=("prompt", "response"),
                finds=_sum(exchange.finds, {_TEXT: 1}),
            )  # fmt: skip
        scrub = Scrub(self._finder)
        request, in_prompt = self._request(exchange.request, scrub)
        response, in_response = self._whole(exchange.response, scrub, in_prompt)
        error = scrub.string(exchange.error)
        if not scrub.finds and request is exchange.request and response is exchange.response:
            return exchange
        return msgspec.structs.replace(
            exchange,
            request=request,
            response=response,
            error=error,
            prompt_ids=b"" if in_prompt else exchange.prompt_ids,
            response_ids=b"" if in_response else exchange.response_ids,
            logprobs=b"" if in_response else exchange.logprobs,
            redacted=_parts(exchange.redacted, in_prompt, in_response),
            finds=_sum(exchange.finds, scrub.finds),
        )

    def feedback(self, feedback: Feedback) -> Feedback:
        """`feedback` with its text redacted."""
        if self._strict is not None:
            return self._strict.feedback(feedback)
        text, found = self.text(feedback.text)
        return msgspec.structs.replace(feedback, text=text) if found else feedback

    def left_out(self, record: RawExchange | Feedback) -> RawExchange | Feedback:
        """`record` without anything that could not be searched: it took too long."""
        if self._strict is not None:
            record = self._strict.raw(record) if isinstance(record, RawExchange) else self._strict.feedback(record)
        if isinstance(record, Feedback):
            return msgspec.structs.replace(record, text=f"[REDACTED:{_UNREADABLE}]")
        finds = _sum(record.finds, {_UNREADABLE: 1})
        return msgspec.structs.replace(
            record,
            request=b"",
            response=b"",
            content_encoding="",
            redacted=("prompt", "response"),
            finds=finds,
        )

    def text(self, text: str) -> tuple[str, dict[str, int]]:
        """`text` redacted, and how many finds of each kind were taken out of it."""
        if not self._enabled:
            return text, {}
        if self._strict is not None:
            return self._strict.text(text), {_TEXT: 1} if text else {}
        scrub = Scrub(self._finder)
        return scrub.string(text), scrub.finds

    def _stripped(self, raw: RawExchange, strict: Strict) -> RawExchange:
        """`raw` in strict mode. A model that was asked for is a name only if the engine knew it."""
        plain = _inflated(raw.request, "gzip" if raw.request.startswith(_COMPRESSED) else "") or b""
        request = _structure(plain, strict, model=raw.status < 400)
        plain = _inflated(raw.response, raw.content_encoding.strip().lower()) or b""
        if raw.content_type.lower().startswith("text/event-stream"):
            stream = Stream(plain)
            stream.strip(strict)
            response = stream.encode()
        else:
            response = _structure(plain, strict)
        return msgspec.structs.replace(
            strict.raw(raw), request=request, response=response, content_encoding="", redacted=("prompt", "response"),
            finds=_sum(raw.finds, {_TEXT: 1}),
        )  # fmt: skip

    def _request(self, data: bytes, scrub: Scrub) -> tuple[bytes, bool]:
        """The request, and whether something was taken out of it."""
        plain = data
        if data.startswith(_COMPRESSED):
            inflated = _inflated(data, "gzip")
            if inflated is None:
                return _left_out(scrub)
            plain = inflated
        before = sum(scrub.finds.values())
        try:
            body, encode = _decoded(plain)
            if self._is_clean(body, scrub):
                return data, False
            body = redact_request(body, scrub)
        except (_NoJson, RecursionError):
            if not plain.startswith(_MULTIPART) and not _is_text(plain):
                return _left_out(scrub)  # packed in a way of its own
            text = self._loose(plain, scrub)
            return (text, True) if text != plain else (data, False)
        return (encode(body), True) if sum(scrub.finds.values()) > before else (data, False)

    def _response(self, raw: RawExchange, scrub: Scrub, in_prompt: bool) -> tuple[bytes, bool]:
        if not raw.response:
            return raw.response, False
        plain = _inflated(raw.response, raw.content_encoding.strip().lower())
        if plain is None:
            return _left_out(scrub)
        if raw.content_type.lower().startswith("text/event-stream"):
            after, found = self._streamed(plain, scrub, in_prompt)
        else:
            after, found = self._whole(plain, scrub, in_prompt)
        return (raw.response if after is plain else after), found

    def _whole(self, data: bytes, scrub: Scrub, in_prompt: bool) -> tuple[bytes, bool]:
        """A response that is no stream, and whether something was taken out of it."""
        if not data:
            return data, False
        before, scrub.taken = sum(scrub.finds.values()), {}
        try:
            body, encode = _decoded(data)
            if not self._is_clean(body, scrub):
                body = redact_response(body, scrub)
            found = sum(scrub.finds.values()) > before
            dropped = (found or in_prompt) and masked_tokens(
                body, _only_choice(body), scrub, prompt=in_prompt, response=found
            )
        except (_NoJson, RecursionError):
            return self._unreadable(data, scrub, in_prompt)
        return (encode(body) if found or dropped else data), found

    def _streamed(self, data: bytes, scrub: Scrub, in_prompt: bool) -> tuple[bytes, bool]:
        before, scrub.taken = sum(scrub.finds.values()), {}
        try:
            stream = Stream(data)
            texts: list[str] = []
            named = stream.collect(texts, self._finder)
            if named or not self._finder.clean(texts, scrub.known):
                stream.redact(scrub)
            found = sum(scrub.finds.values()) > before
            if not found and not (in_prompt and may_carry_tokens(data)):
                return data, False
            stream.mask_tokens(scrub, prompt=in_prompt, response=found)
            return stream.encode(), found
        except RecursionError:
            return self._unreadable(data, scrub, in_prompt)

    def _unreadable(self, data: bytes, scrub: Scrub, in_prompt: bool) -> tuple[bytes, bool]:
        """A response that is cut off, or in a form of its own."""
        text = self._loose(data, scrub)
        if (text != data or in_prompt) and may_carry_tokens(data):
            return _left_out(scrub)  # there are ids in it that decode to what was found, and no telling where
        return (text, True) if text != data else (data, False)

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


def _inflated(data: bytes, encoding: str) -> bytes | None:
    """`data` without its content encoding, as far as it came; None if that cannot be told."""
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = stream.decompress(data, _MAX_INFLATED)
    except zlib.error:
        return None
    return None if stream.unconsumed_tail or stream.unused_data else plain


def _left_out(scrub: Scrub) -> tuple[bytes, bool]:
    scrub.finds[_UNREADABLE] = scrub.finds.get(_UNREADABLE, 0) + 1
    return b"", True


def _parts(before: tuple[Part, ...], prompt: bool, response: bool) -> tuple[Part, ...]:
    parts: list[Part] = []
    if prompt or "prompt" in before:
        parts.append("prompt")
    if response or "response" in before:
        parts.append("response")
    return tuple(parts)


def _sum(before: dict[str, int], found: dict[str, int]) -> dict[str, int]:
    return {
        kind: before.get(kind, 0) + found.get(kind, 0) for kind in (*before, *(k for k in found if k not in before))
    }
