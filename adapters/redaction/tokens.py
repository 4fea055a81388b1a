"""Token ids of an answer that hold nothing of what was taken out of the call: what overlaps a find is masked, all else
stays.

Ids decode back to their text, and the tap has no tokenizer. But the engine names the text of each sampled token beside
its log-prob (`logprobs.content[].bytes`), so it is known here which tokens a find lies in. Such a token becomes -1 with
the log-prob 0; the first of several in a row carries the text that stands in for all of them. Nothing is kept where
that cannot be told: the engine named no texts, or a find is not in them in any known spelling.
"""

import json
import re
from itertools import accumulate, groupby, pairwise
from typing import Annotated, Any

import msgspec

from adapters.redaction.finder import Edit, applied, merged
from adapters.redaction.walk import TOKENS, Walk

MASKED = -1
"""Instead of the id of a token that overlaps a find; no vocabulary has it."""
_RAW_MESSAGES = {"prompt": "input_messages", "response": "output_messages"}
"""With `enable_response_messages` vLLM's /v1/responses (0.32) has the ids in here, as the `tokens` of each message."""


class _Entry(msgspec.Struct):
    """What the engine says of a sampled token."""

    token: str
    logprob: float
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None


def take_out(body: Any, walk: Walk, *, prompt: bool, response: bool) -> bool:
    """Take out of a response, in place, what decodes to a find in the prompt or the response; the other tokens of its
    only answer stay. Returns whether anything changed."""
    only, kept = None, {}
    match body:
        case {"choices": [dict() as only]}:
            kept = _masked(only, walk)
    parts = [name for name, gone in (("prompt", prompt), ("response", response or only is not None)) if gone]
    dropped = _drop(body, {name for part in parts for name in TOKENS[part]}, {_RAW_MESSAGES[part] for part in parts})
    if only is not None:
        only.update(kept)
    return dropped or bool(kept)


def may_carry_tokens(data: bytes) -> bool:
    """Whether bytes that are no JSON as a whole may hold token ids or log-probs."""
    return b"token_ids" in data or b"logprobs" in data or b'"tokens"' in data


def _drop(value: Any, fields: set[str], raw: set[str]) -> bool:
    gone = False
    if isinstance(value, dict):
        for name in fields & value.keys():
            gone |= value.pop(name) not in (None, [])
    parts = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    for name, part in parts:
        gone |= _drop(part, fields | {"tokens"} if name in raw else fields, raw)
    return gone


def _masked(choice: dict[str, Any], walk: Walk) -> dict[str, Any]:
    """The tokens of one answer, masked; none if what is left might decode to something that was taken out."""
    try:
        ids = msgspec.convert(choice["token_ids"], list[int])
        entries = msgspec.convert(choice["logprobs"]["content"], list[_Entry])
    except (KeyError, TypeError, msgspec.ValidationError):
        return {}
    texts = [bytes(entry.bytes or b"") or entry.token.encode("utf-8", "surrogatepass") for entry in entries]
    whole = b"".join(texts).decode("latin-1")  # a character is a byte
    edits = _edits(whole, walk)
    if not ids or len(ids) != len(entries) or edits is None:
        return {}
    gone = bytearray(len(whole))
    for edit in edits:
        gone[edit.start : edit.end] = b"\1" * (edit.end - edit.start)
    ends = [0, *accumulate(map(len, texts))]
    hidden = [1 in gone[start : max(end, start + 1)] for start, end in pairwise(ends)]
    kept = [{"token": "", "logprob": 0.0 if hid else one.logprob} for one, hid in zip(entries, hidden, strict=True)]
    for hid, run in groupby(range(len(texts)), hidden.__getitem__):
        if hid:
            places = [*run]
            start, end = ends[places[0]], ends[places[-1] + 1]
            stand_in = applied(whole[:end], [edit for edit in edits if start <= edit.start and edit.end <= end])[start:]
            kept[places[0]]["token"] = stand_in.encode("latin-1").decode("utf-8", "replace")
    masked = [MASKED if hid else one for one, hid in zip(ids, hidden, strict=True)]
    return {"token_ids": masked, "logprobs": {"content": kept}}


def _edits(whole: str, walk: Walk) -> list[Edit] | None:
    """What is to be taken out, in order and without overlaps; None if something that was taken out is nowhere."""
    placeholders = {value: walk.finder.placeholder(kind, value) for value, kind in walk.known.items()} | walk.taken
    spans: list[tuple[int, int, str]] = []
    for value, placeholder in placeholders.items():
        places = _places(whole, value, placeholder)
        if value in walk.taken and not places:
            return None
        spans += places
    text = whole.encode("latin-1").decode("utf-8", "surrogateescape")
    for edit in walk.finder.edits(text, walk.known):
        start, end = (len(text[:at].encode("utf-8", "surrogateescape")) for at in (edit.start, edit.end))
        spans.append((start, end, edit.placeholder))
    return [Edit(group[0][0], max(span[1] for span in group), group[0][2], "", "") for group in merged(spans)]


def _places(whole: str, value: str, placeholder: str) -> list[tuple[int, int, str]]:
    """Wherever `value` stands, as it is or as a string of JSON has it, once or twice."""
    forms = {value}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=escaped)[1:-1] for form in forms for escaped in (True, False)}
    spelt = [form.encode("utf-8", "surrogatepass").decode("latin-1") for form in forms if form]
    return [
        (match.start(), match.start() + len(form), placeholder)
        for form in spelt
        for match in re.finditer(f"(?={re.escape(form)})", whole)
    ]
