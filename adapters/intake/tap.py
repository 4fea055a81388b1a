"""What the tap copied of a call is read, in the recorder: nothing of it has touched a disk yet.

    inflate -> merge the stream -> redact both bodies -> read tokens and names

It never loses a record: what cannot be read becomes an `Exchange` with `error` set and the body as text. A stream is
redacted after it was merged: a secret that came in pieces is whole by then. What nobody looks into is copied and not
decoded: 2,000 calls a second have to pass through here beside all else.
"""

import zlib
from typing import TYPE_CHECKING

import msgspec

from actors.dialects import Dialect, Tokens, dialect_of, parsed
from actors.dialects.anthropic import TOKENS
from actors.dialects.form import FIELDS, NULL, TOKEN_ERRORS, Fields, objects
from actors.messages import Exchange
from actors.messages.dialects import dialect_at
from actors.messages.traffic import Part
from adapters.intake.asked import hinted, told
from adapters.intake.streams import merge

if TYPE_CHECKING:
    from adapters.redaction import Redactor

_MAX_INFLATED = 16 << 20
"""Of a body: as large as one that is captured may be."""
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""How gzip and zlib begin (RFC 1952, RFC 1950)."""
_ASKED_BY = {
    "prompt_token_ids": "return_token_ids", "token_ids": "return_token_ids", "logprobs": "logprobs",
    "weight_versions": "return_weight_versions", "input_messages": "enable_response_messages",
    "output_messages": "enable_response_messages", TOKENS: TOKENS,
}  # fmt: skip
"""Field of a response, or of a choice in it -> the field of a request that asks for it."""
_NULL_UNASKED = ("logprobs", "input_messages", "output_messages")
"""Those that stand in an answer whoever asked, empty."""


def read_call(copy: Exchange, redactor: "Redactor | None" = None, *, encoding: str = "") -> Exchange:
    """What the agent saw in a call, as far as it can be read, without what `redactor` takes out.

    Args:
        copy: as the tap makes it: bodies as they went by, `error` says why it is not complete.
        encoding: content encoding of the response.
    """
    dialect = dialect_of(copy.endpoint)
    request, (response, error) = _plain(copy.request), _opened(copy, encoding, dialect)
    redacted, finds = (), {}
    if redactor is not None:
        clean = redactor.bodies(request, response, error)
        request, response, error, redacted, finds = (
            clean.request, clean.response, clean.error, clean.redacted, clean.finds,
        )  # fmt: skip
    asked, fields = parsed(request, FIELDS.decode) or {}, parsed(response, FIELDS.decode)
    if response and not copy.streamed and parsed(response) is None:
        error = copy.error or "response is no JSON"
        response = msgspec.json.encode(response.decode("utf-8", "replace"))
    tokens = _tokens(copy, dialect, fields, redacted)
    ended = not error
    if fields is not None and dialect is not None:
        ended = dialect.ended(fields)
        response = msgspec.json.encode(_without_unasked(fields, asked))
    exchange = msgspec.structs.replace(
        copy,
        complete=ended and (copy.complete or _left_at_the_end(copy)),
        request=request,
        response=response,
        error=error,
        redacted=redacted,
        finds=finds,
        hints=hinted(copy.hints, asked),
        **told(asked, fields or {}),
        **msgspec.structs.asdict(tokens),
    )
    return redactor.message(exchange) if redactor is not None and redactor.strict else exchange


def _opened(copy: Exchange, encoding: str, dialect: Dialect | None) -> tuple[bytes, str]:
    """The response without its encodings: inflated, and merged if it is a stream; and what is wrong with it."""
    try:
        data = _inflated(copy.response, encoding.strip().lower())
    except (zlib.error, ValueError) as error:
        return b"", f"response cannot be decompressed: {error}"
    if not data:
        return b"", "" if copy.complete else copy.error or "no response"
    if not copy.streamed:
        return data, ""
    merged, error = merge(data, dialect)
    return msgspec.json.encode(merged), error


def _left_at_the_end(copy: Exchange) -> bool:
    """The agent had the last event and did not wait for the end of the body: the openai package closes at `[DONE]`,
    and where the engine sends the last chunk of the body a moment later, that is before it."""
    return copy.streamed and copy.error == "client_left"


def _plain(request: bytes) -> bytes:
    """A request without the compression that its first bytes tell of."""
    try:
        return _inflated(request, "gzip") if request.startswith(_COMPRESSED) else request
    except (zlib.error, ValueError):
        return request


def _inflated(data: bytes, encoding: str) -> bytes:
    """`data` without its content encoding, as far as it came."""
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"content encoding {encoding}")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    plain = stream.decompress(data, _MAX_INFLATED)
    if stream.unconsumed_tail or stream.unused_data:
        raise ValueError(f"more than {_MAX_INFLATED} bytes, or something behind its end")
    return plain


def _tokens(copy: Exchange, dialect: Dialect | None, fields: Fields | None, redacted: tuple[Part, ...]) -> Tokens:
    """The response's tokens, those of what was taken out masked: ids decode back to it. Of a redacted prompt there are
    none; whoever has a tokenizer may render what is left of it."""
    if fields is None or copy.status >= 400:
        return Tokens(why_no_tokens="no response")
    if dialect is None:
        return Tokens(why_no_tokens="no conversation")
    if redacted and dialect_at(copy.endpoint) != "chat":
        return Tokens(why_no_tokens=f"redacted {redacted[0]}")
    if "prompt" in redacted:
        fields = {**fields, "prompt_token_ids": msgspec.Raw(b"[]")}
    try:
        tokens = dialect.tokens(fields)
    except TOKEN_ERRORS:
        return Tokens(why_no_tokens="token fields of an unknown form")
    return Tokens(why_no_tokens=f"redacted {redacted[-1]}") if redacted and not tokens.response_ids else tokens


def _without_unasked(body: Fields, request: Fields) -> Fields:
    """The response without what the agent had not asked for: it is packed already, and as JSON ten times the size.
    What stands there unasked, if empty, stays so."""
    unasked = {name for name, asked_by in _ASKED_BY.items() if asked_by not in request}
    shown = _without(unasked, body)
    if choices := objects(body, "choices"):
        shown["choices"] = msgspec.Raw(msgspec.json.encode([_without(unasked, choice) for choice in choices]))
    return shown


def _without(unasked: set[str], fields: Fields) -> Fields:
    kept = {name: raw for name, raw in fields.items() if name not in unasked}
    return {name: NULL for name in _NULL_UNASKED if name in fields} | kept
