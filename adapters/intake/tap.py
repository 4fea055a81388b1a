"""From the tap's raw bytes to an `Exchange`.

Pure, and it never loses a record: what cannot be read becomes an `Exchange` with `error` set and the body as text.
"""

import zlib
from typing import Any

import msgspec

from actors.messages import Exchange, Hints, Sampling, VersionSpan, pack_array
from actors.messages.spool import RawExchange
from adapters.intake.streams import merge

_MAX_INFLATED = 64 << 20
_MASKS = (
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "logit_bias",
    "allowed_token_ids", "bad_words",
)  # fmt: skip
_NEUTRAL = {
    "top_k": (0, -1), "min_p": (0,), "presence_penalty": (0,), "frequency_penalty": (0,), "repetition_penalty": (1,),
}  # fmt: skip
"""Fields under which the log-probs are not those of the distribution that was sampled, but for these values."""


class _Tokens(msgspec.Struct, frozen=True):
    prompt_ids: bytes = b""
    response_ids: bytes = b""
    logprobs: bytes = b""
    versions: tuple[VersionSpan, ...] = ()


def exchange_from_raw(raw: RawExchange) -> Exchange:
    """What the agent saw in `raw`, as far as it can be read; has the record's id."""
    request = _object(raw.request)
    streamed = raw.content_type.lower().startswith("text/event-stream")
    body, finished, error = _response(raw, streamed)
    tokens, mismatch = _tokens(body)
    if isinstance(body, dict):
        _hide_unasked(body, request, raw.tokens_requested)
    hints = _hints(raw.hints, request)
    return Exchange(
        id=raw.id,
        tenant=raw.tenant,
        endpoint=raw.path,
        engine=raw.engine,
        model=_text(request.get("model")) or (_text(body.get("model")) if isinstance(body, dict) else ""),
        started=raw.received,
        duration=max(0.0, raw.finished - raw.received),
        status=raw.status,
        streamed=streamed,
        complete=raw.complete and finished,
        request=raw.request,
        response=b"" if body is None else msgspec.json.encode(body),
        response_id=_text(body.get("id")) if isinstance(body, dict) else "",
        prompt_ids=tokens.prompt_ids,
        response_ids=tokens.response_ids,
        logprobs=tokens.logprobs,
        versions=tokens.versions,
        sampling=_sampling(request),
        hints=hints,
        error=error or mismatch,
    )


def _response(raw: RawExchange, streamed: bool) -> tuple[Any, bool, str]:
    """(body, whether it came to its end, what is wrong with it)"""
    try:
        data = _inflated(raw.response, raw.content_encoding.strip().lower())
    except (zlib.error, ValueError) as error:
        return None, False, f"response cannot be decompressed: {error}"
    if not data:
        return None, raw.complete, "" if raw.complete else raw.problem or "no response"
    if streamed:
        merged = merge(data)
        return merged.body, merged.finished and not _aborted(merged.body), merged.error
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = raw.problem or f"response is no JSON: {error}"
        return data.decode("utf-8", "replace"), False, why
    return body, not _aborted(body), ""


def _aborted(body: Any) -> bool:
    """The engine gave up in the middle and answered with what it had."""
    return any(choice.get("finish_reason") in ("abort", "error") for choice in _choices(body))


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


def _tokens(body: Any) -> tuple[_Tokens, str]:
    """Token ids, log-probs and versions of a response with one choice; all empty if one is missing."""
    choices = _choices(body)
    if len(choices) != 1:
        return _Tokens(), ""
    choice = choices[0]
    prompt, ids = body.get("prompt_token_ids") or choice.get("prompt_token_ids"), choice.get("token_ids")
    content = (choice.get("logprobs") or {}).get("content") if isinstance(choice.get("logprobs"), dict) else None
    if not isinstance(ids, list) or not isinstance(prompt, list) or not isinstance(content, list):
        return _Tokens(), ""
    if len(ids) != len(content):
        return _Tokens(), f"{len(ids)} token ids and {len(content)} log-probs"
    try:
        packed = _Tokens(
            prompt_ids=pack_array(prompt, "<i4"),
            response_ids=pack_array(ids, "<i4"),
            logprobs=pack_array([entry["logprob"] for entry in content], "<f4"),
            versions=_versions(choice.get("weight_versions"), len(ids)),
        )
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        return _Tokens(), f"token fields of an unknown form: {error!r}"
    return packed, ""


def _versions(spans: Any, length: int) -> tuple[VersionSpan, ...]:
    """The spans that the engine names; a label that is no number of ours is version -1."""
    found: list[VersionSpan] = []
    for span in spans if isinstance(spans, list) else ():
        label = str(span["version"])
        start, end = max(0, int(span["start"])), min(length, int(span["end"]))
        if start < end:
            found.append(VersionSpan(int(label) if label.isascii() and label.isdigit() else -1, start, end))
    return tuple(found)


def _hide_unasked(body: dict[str, Any], request: dict[str, Any], tokens_requested: bool) -> None:
    """Take out what only the tap had asked for: it is packed already, and as JSON it is ten times the size."""
    if not tokens_requested:
        return
    ids, logprobs = "return_token_ids" not in request, "logprobs" not in request
    if ids:
        body.pop("prompt_token_ids", None)
    for choice in _choices(body):
        if ids:
            choice.pop("token_ids", None)
        if logprobs:
            choice["logprobs"] = None
        if "return_weight_versions" not in request:
            choice.pop("weight_versions", None)


def _sampling(request: dict[str, Any]) -> Sampling:
    choice = request.get("tool_choice")
    shape = request.get("response_format")
    forced = isinstance(choice, dict) or choice == "required"
    forced |= isinstance(shape, dict) and shape.get("type") not in (None, "text")
    forced |= any(request.get(name) for name in _MASKS)
    forced |= any(request.get(name) not in (None, *neutral) for name, neutral in _NEUTRAL.items())
    return Sampling(temperature=_number(request.get("temperature")), top_p=_number(request.get("top_p")), forced=forced)


def _hints(told: Hints, request: dict[str, Any]) -> Hints:
    """The headers' hints with those of the body; a header goes before the body."""
    metadata = request.get("metadata")
    explicit = _text(metadata.get("trajectory_id")) if isinstance(metadata, dict) else ""
    messages = request.get("messages")
    answered = tuple(
        _text(message.get("tool_call_id"))
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict) and message.get("role") == "tool" and _text(message.get("tool_call_id"))
    )
    return Hints(
        trajectory_id=told.trajectory_id or explicit,
        tool_call_ids=answered,
        previous_response_id=_text(request.get("previous_response_id")),
        opt_out=told.opt_out,
    )


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`; empty if there is none, which is the engine's to complain about."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _choices(body: Any) -> list[dict[str, Any]]:
    choices = body.get("choices") if isinstance(body, dict) else None
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0
