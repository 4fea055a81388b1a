"""Token ids of an answer that hold nothing of what was taken out of the call: what overlaps a find is masked, all else
stays.

Ids decode back to their text, and the tap has no tokenizer. But the engine names the text of each sampled token beside
its log-prob (`logprobs.content[].bytes`), so it is known here which tokens a find lies in. Such a token becomes -1 with
the log-prob 0; the first of several in a row carries the text that stands in for all of them. Nothing is kept where
that cannot be told: the engine named no texts, or a find is not in them in any known spelling.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from adapters.redaction.scrub import Scrub

MASKED = -1
"""Instead of the id of a token that overlaps a find; no vocabulary has it."""
_Span = tuple[int, int, bytes]
"""Half-open, in bytes of the answer, and what is to stand there."""


def mask(holders: list[dict[str, Any]], found: Mapping[str, str], scrub: Scrub) -> bool:
    """Mask the tokens of one answer in place: `holders` carry its pieces in order, `found` has placeholders by value of
    what was taken out of it, `scrub` knows the prompt's too. Returns whether what is left decodes to none of it; if
    not, nothing was changed, and all of it must go."""
    pieces = _pieces(holders)
    if pieces is None:
        return False
    ids, entries = pieces
    texts = [_text(entry) for entry in entries]
    whole = b"".join(texts)
    spans = _spans(whole, found, scrub)
    if spans is None:
        return False
    kept = [{"token": "", "logprob": entry["logprob"]} for entry in entries]
    for first, last, stand_in in _runs(texts, spans, whole):
        for at in range(first, last):
            ids[at], kept[at] = MASKED, {"token": "", "logprob": 0.0}
        kept[first]["token"] = stand_in.decode("utf-8", "replace")
    at = 0
    for holder in holders:
        mine = holder.get("token_ids") or []
        if mine:
            holder["token_ids"] = ids[at : at + len(mine)]
            holder["logprobs"] = {"content": kept[at : at + len(mine)]}
        else:
            holder.pop("logprobs", None)
        at += len(mine)
    return True


def _pieces(holders: list[dict[str, Any]]) -> tuple[list[int], list[dict[str, Any]]] | None:
    """Ids and entries of all pieces; None if they do not go together, piece by piece."""
    ids: list[int] = []
    entries: list[dict[str, Any]] = []
    for holder in holders:
        own, told = holder.get("token_ids") or [], holder.get("logprobs") or {}
        content = (told.get("content") if isinstance(told, dict) else None) or []
        if not isinstance(own, list) or not isinstance(content, list) or len(own) != len(content):
            return None
        ids += own
        entries += content
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("logprob"), int | float):
            return None
        if not isinstance(entry.get("token"), str):
            return None
    return (ids, entries) if ids and all(type(one) is int for one in ids) else None


def _text(entry: dict[str, Any]) -> bytes:
    told = entry.get("bytes")
    if isinstance(told, list) and all(type(byte) is int and 0 <= byte < 256 for byte in told):
        return bytes(told)
    return str(entry["token"]).encode("utf-8", "surrogatepass")


def _spans(whole: bytes, found: Mapping[str, str], scrub: Scrub) -> list[_Span] | None:
    """What is to be taken out, in order and without overlaps; None if one of `found` is nowhere."""
    spans: list[_Span] = []
    for value, placeholder in found.items():
        places = _places(whole, value, placeholder)
        if not places:
            return None
        spans += places
    for value, kind in scrub.known.items():
        if value not in found and (edit := scrub.finder.edit(kind, 0, 0, value)):
            spans += _places(whole, value, edit.placeholder)
    text = whole.decode("utf-8", "surrogateescape")
    for edit in scrub.finder.edits(text, scrub.known):
        start = len(text[: edit.start].encode("utf-8", "surrogateescape"))
        end = start + len(text[edit.start : edit.end].encode("utf-8", "surrogateescape"))
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
    places: list[_Span] = []
    for form in _forms(value):
        at = whole.find(form)
        while at >= 0:
            places.append((at, at + len(form), placeholder.encode()))
            at = whole.find(form, at + 1)
    return places


def _forms(value: str) -> Collection[bytes]:
    forms = {value}
    for _ in range(2):
        forms |= {json.dumps(form, ensure_ascii=escaped)[1:-1] for form in forms for escaped in (True, False)}
    return {form.encode("utf-8", "surrogatepass") for form in forms if form}


def _runs(texts: list[bytes], spans: list[_Span], whole: bytes) -> list[tuple[int, int, bytes]]:
    """(first, last, stand-in) of tokens next to each other that overlap a span; the stand-in has what these tokens hold
    beside it."""
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text))
    runs: list[tuple[int, int, list[_Span]]] = []
    at = 0
    for span in spans:
        while at < len(texts) and starts[at + 1] <= span[0]:
            at += 1
        first = last = at
        while last < len(texts) and starts[last] < span[1]:
            last += 1
        if runs and first <= runs[-1][1]:
            before = runs[-1]
            runs[-1] = (before[0], max(last, before[1]), [*before[2], span])
        else:
            runs.append((first, last, [span]))
    return [(first, last, _stand_in(whole, starts[first], starts[last], inside)) for first, last, inside in runs]


def _stand_in(whole: bytes, start: int, end: int, spans: list[_Span]) -> bytes:
    parts: list[bytes] = []
    for first, last, placeholder in spans:
        parts += (whole[start:first], placeholder)
        start = last
    return b"".join((*parts, whole[start:end]))
