"""Token ids of an answer that hold nothing of what was taken out of the call: what overlaps a find is masked, all else
stays.

Ids decode back to their text, and the tap has no tokenizer. But the engine names the text of each sampled token beside
its log-prob (`logprobs.content[].bytes`), so it is known here which tokens a find lies in. Such a token becomes -1 with
the log-prob 0; the first of several in a row carries the text that stands in for all of them. Nothing is kept where
that cannot be told: the engine named no texts, or a find is not in them in any known spelling.
"""

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any

import msgspec

from adapters.redaction.finder import Finder

MASKED = -1
"""Instead of the id of a token that overlaps a find; no vocabulary has it."""
_PROMPT_FIELDS = frozenset({"prompt_token_ids", "prompt_logprobs", "prompt_text"})
_RESPONSE_FIELDS = frozenset({"token_ids", "logprobs", "top_logprobs", "output_token_ids"})
TOKEN_FIELDS = _PROMPT_FIELDS | _RESPONSE_FIELDS
_RAW_MESSAGES = ("input_messages", "output_messages")
"""With `enable_response_messages` vLLM's /v1/responses (0.32) has the ids in here, as the `tokens` of each message."""


class _Entry(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Entry]


class _Sampled(msgspec.Struct):
    """A choice whose tokens can be told from each other."""

    token_ids: list[int]
    logprobs: _Logprobs


_Span = tuple[int, int, bytes]
"""Half-open, in bytes of the answer, and what is to stand there."""


def take_out(
    body: Any, finder: Finder, taken: Mapping[str, str], known: dict[str, str], *, prompt: bool, response: bool
) -> bool:
    """Take out of a response, in place, what decodes to a find in the prompt or the response; the other tokens of its
    only answer stay. Returns whether anything changed.

    Args:
        taken: placeholders by value, of what was taken out of the response.
        known: kinds by value, of what was taken out before.
    """
    choices = body.get("choices") if isinstance(body, dict) else None
    only = choices[0] if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict) else None
    kept: dict[str, Any] = {}
    if only is not None and _mask(only, finder, taken, known):
        kept = {name: only.pop(name) for name in ("token_ids", "logprobs")}
    gone = _drop(body, prompt=prompt, response=response or only is not None)
    if only is not None:
        only.update(kept)
    return gone or bool(kept)


def may_carry_tokens(data: bytes) -> bool:
    """Whether bytes that are no JSON as a whole may hold token ids or log-probs."""
    return b"token_ids" in data or b"logprobs" in data or b'"tokens"' in data


def _drop(value: Any, *, prompt: bool, response: bool) -> bool:
    gone = False
    if isinstance(value, dict):
        fields = (_PROMPT_FIELDS if prompt else frozenset()) | (_RESPONSE_FIELDS if response else frozenset())
        for name in fields & value.keys():
            gone |= value.pop(name) not in (None, [])
        for name, wanted in zip(_RAW_MESSAGES, (prompt, response), strict=True):
            messages = value.get(name) if wanted else None
            for message in messages if isinstance(messages, list) else ():
                gone |= isinstance(message, dict) and message.pop("tokens", None) not in (None, [])
    for part in value.values() if isinstance(value, dict) else value:
        gone |= isinstance(part, dict | list) and _drop(part, prompt=prompt, response=response)
    return gone


def _mask(choice: dict[str, Any], finder: Finder, taken: Mapping[str, str], known: dict[str, str]) -> bool:
    """Mask the tokens of one answer in place. Returns whether what is left decodes to nothing that was taken out; if
    not, nothing was changed, and all of it must go."""
    try:
        sampled = msgspec.convert(choice, _Sampled)
    except msgspec.ValidationError:
        return False
    ids, entries = sampled.token_ids, sampled.logprobs.content
    if not ids or len(ids) != len(entries):
        return False
    texts = [bytes(entry.bytes or b"") or entry.token.encode("utf-8", "surrogatepass") for entry in entries]
    whole = b"".join(texts)
    spans = _spans(whole, finder, taken, known)
    if spans is None:
        return False
    hidden: list[bool] = []
    starts, at = [0], 0
    for text in texts:
        start, end = starts[-1], starts[-1] + len(text)
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        hidden.append(at < len(spans) and spans[at][0] < end)
        starts.append(end)
    kept = [{"token": "", "logprob": entry.logprob} for entry in entries]
    for gone, run in groupby(range(len(texts)), hidden.__getitem__):
        if gone:
            places = list(run)
            for place in places:
                ids[place], kept[place] = MASKED, {"token": "", "logprob": 0.0}
            stand_in = _applied(whole, spans, starts[places[0]], starts[places[-1] + 1])
            kept[places[0]]["token"] = stand_in.decode("utf-8", "replace")
    choice |= {"token_ids": ids, "logprobs": {"content": kept}}
    return True


def _spans(whole: bytes, finder: Finder, taken: Mapping[str, str], known: dict[str, str]) -> list[_Span] | None:
    """What is to be taken out, in order and without overlaps; None if something that was taken out is nowhere."""
    spans: list[_Span] = []
    for value, placeholder in taken.items():
        places = _places(whole, value, placeholder)
        if not places:
            return None
        spans += places
    for value, kind in known.items():
        if value not in taken and (edit := finder.whole(kind, value)):
            spans += _places(whole, value, edit.placeholder)
    text = whole.decode("utf-8", "surrogateescape")
    at = end = 0
    for edit in finder.edits(text, known):
        start = end + len(text[at : edit.start].encode("utf-8", "surrogateescape"))
        end = start + len(text[edit.start : edit.end].encode("utf-8", "surrogateescape"))
        at = edit.end
        spans.append((start, end, edit.placeholder.encode()))
    merged: list[_Span] = []
    for start, end, placeholder in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, placeholder))
    return merged


def _places(whole: bytes, value: str, placeholder: str) -> list[_Span]:
    """Wherever `value` stands, as it is or as a string of JSON has it, once or twice."""
    forms = {value}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=escaped)[1:-1] for form in forms for escaped in (True, False)}
    places: list[_Span] = []
    for form in (form.encode("utf-8", "surrogatepass") for form in forms if form):
        at = whole.find(form)
        while at >= 0:
            places.append((at, at + len(form), placeholder.encode()))
            at = whole.find(form, at + 1)
    return places


def _applied(whole: bytes, spans: list[_Span], start: int, end: int) -> bytes:
    """`whole[start:end]` with what stands in for the spans in it."""
    parts: list[bytes] = []
    for first, last, placeholder in spans:
        if start <= first and last <= end:
            parts += (whole[start:first], placeholder)
            start = last
    return b"".join((*parts, whole[start:end]))
