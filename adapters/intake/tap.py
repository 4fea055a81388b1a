"""From the tap's raw bytes to an `Exchange`.

Pure, and it never loses a record: what cannot be read becomes an `Exchange` with `error` set and the body as text. What
nobody looks into is copied and not decoded: 2,000 calls a second have to pass through here beside all else.
"""

import zlib
from typing import Any

import msgspec

from actors.dialects import Dialect, Tokens, dialect_of
from actors.dialects.anthropic import TOKENS
from actors.dialects.chat import CHAT
from actors.dialects.form import DECODE_ERRORS, FIELDS, NULL, TOKEN_ERRORS, Fields, objects, value
from actors.messages import Exchange, Hints
from actors.messages.spool import RawExchange
from adapters.intake.sampling import read_sampling
from adapters.intake.streams import merge

_MAX_INFLATED = 64 << 20


class _Response(msgspec.Struct):
    fields: Fields | None
    """Of the response, if it is an object."""
    data: bytes
    """JSON to be kept; empty if there was no response."""
    finished: bool
    error: str


def exchange_from_raw(raw: RawExchange) -> Exchange:
    """What the agent saw in `raw`, as far as it can be read; has the record's id."""
    request = _object(raw.request)
    streamed = raw.content_type[:17].lower() == "text/event-stream"
    dialect = dialect_of(raw.path)
    response = _response(raw, streamed, dialect)
    fields = response.fields
    tokens = _tokens(raw, dialect, fields)
    if fields is not None and raw.tokens_requested and _hide_unasked(fields, request):
        response.data = msgspec.json.encode(fields)
    return Exchange(
        id=raw.id,
        tenant=raw.tenant,
        endpoint=raw.path,
        engine=raw.engine,
        model=_text(value(request, "model")) or (_text(value(fields, "model")) if fields else ""),
        started=raw.received,
        duration=max(0.0, raw.finished - raw.received),
        status=raw.status,
        streamed=streamed,
        complete=response.finished and (raw.complete or _left_at_the_end(raw, streamed)),
        request=raw.request,
        response=response.data,
        response_id=_text(value(fields, "id")) if fields else "",
        prompt_ids=tokens.prompt_ids,
        response_ids=tokens.response_ids,
        logprobs=tokens.logprobs,
        versions=tokens.versions,
        why_no_tokens=tokens.why,
        masked=tokens.masked,
        sampling=read_sampling(lambda name: value(request, name)),
        hints=_hints(raw.hints, request),
        error=response.error,
        source=raw.source,
        caller=raw.caller,
        redacted=raw.redacted,
        finds=raw.finds,
    )


def _response(raw: RawExchange, streamed: bool, dialect: Dialect) -> _Response:
    try:
        data = _inflated(raw.response, raw.content_encoding.strip().lower())
    except (zlib.error, ValueError) as error:
        return _Response(None, b"", False, f"response cannot be decompressed: {error}")
    if not data:
        return _Response(None, b"", raw.complete, "" if raw.complete else raw.problem or "no response")
    if streamed:
        merged = merge(data, dialect)
        kept = msgspec.json.encode(merged.body)
        return _Response(_fields(kept), kept, merged.finished, merged.error)
    fields = _fields(data)
    if fields is not None:
        return _Response(fields, data, dialect.ended(fields), "")
    try:
        msgspec.json.decode(data)
    except DECODE_ERRORS as error:
        why = raw.problem or f"response is no JSON: {error}"
        return _Response(None, msgspec.json.encode(data.decode("utf-8", "replace")), False, why)
    return _Response(None, data, True, "")


def _left_at_the_end(raw: RawExchange, streamed: bool) -> bool:
    """The agent had the last event and did not wait for the end of the body: the openai package closes at `[DONE]`,
    and where the engine sends the last chunk of the body a moment later, that is before it."""
    return streamed and raw.problem == "client_left"


def _inflated(data: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "deflate"):
        raise ValueError(f"content encoding {encoding}")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    plain = stream.decompress(data, _MAX_INFLATED)
    if stream.unconsumed_tail:
        raise ValueError(f"more than {_MAX_INFLATED} bytes")
    return plain


def _tokens(raw: RawExchange, dialect: Dialect, fields: Fields | None) -> Tokens:
    """The response's tokens, those of what was taken out masked: ids decode back to it. Of a redacted prompt there are
    none; whoever has a tokenizer may render what is left of it."""
    if fields is None or raw.status >= 400:
        return Tokens(why="no response")
    if raw.redacted and dialect is not CHAT:
        return Tokens(why=f"redacted {raw.redacted[0]}")
    if "prompt" in raw.redacted:
        fields = {**fields, "prompt_token_ids": msgspec.Raw(b"[]")}
    try:
        tokens = dialect.tokens(fields)
    except TOKEN_ERRORS:
        return Tokens(why="token fields of an unknown form")
    if not raw.redacted or tokens.response_ids:
        return tokens
    return Tokens(why=f"redacted {raw.redacted[-1]}")


def _hide_unasked(body: Fields, request: Fields) -> bool:
    """Take out what only the tap had asked for: it is packed already, and as JSON it is ten times the size."""
    ids, logprobs = "return_token_ids" not in request, "logprobs" not in request
    versions = "return_weight_versions" not in request
    changed = ids and body.pop("prompt_token_ids", None) is not None
    choices = objects(body, "choices")
    for choice in choices:
        if ids:
            changed |= choice.pop("token_ids", None) is not None
            changed |= choice.pop("prompt_token_ids", None) is not None
        if logprobs and choice.get("logprobs", NULL) != NULL:
            choice["logprobs"] = NULL
            changed = True
        if versions:
            changed |= choice.pop("weight_versions", None) is not None
    if "enable_response_messages" not in request:
        for name in ("input_messages", "output_messages"):
            if body.get(name, NULL) != NULL:
                body[name] = NULL
                changed = True
    if TOKENS not in request:
        changed |= body.pop(TOKENS, None) is not None
    if choices:
        body["choices"] = msgspec.Raw(msgspec.json.encode(choices))
    return changed


def _hints(told: Hints, request: Fields) -> Hints:
    """The headers' hints with those of the body; a header goes before the body."""
    metadata = value(request, "metadata")
    named: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    conversation = value(request, "conversation")
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    return msgspec.structs.replace(
        told,
        trajectory_id=told.trajectory_id or _text(named.get("trajectory_id")),
        custom_id=told.custom_id or _text(named.get("evolved_id")),
        previous_response_id=told.previous_response_id or _text(value(request, "previous_response_id")),
        conversation=_text(conversation),
    )


def _fields(data: bytes) -> Fields | None:
    try:
        return FIELDS.decode(data)
    except DECODE_ERRORS:
        return None


def _object(data: bytes) -> Fields:
    """The JSON object in `data`; empty if there is none, which is the engine's to complain about."""
    return _fields(data) or {}


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""
