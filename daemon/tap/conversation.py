"""Which conversation a call belongs to, as far as it can be told at the door: for sampling, and for the choice of an
engine.

Sampling needs one answer for all calls of a conversation, so that none is cut to pieces: the run that they name, else
the response before them, else what they open with. An engine is found by the newest ids as well, which change with
every call. Whatever the size of a body, only its ends are read: this happens between an agent and its answer.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from actors.messages.dialects import guessable
from daemon.tap.request import Request

_HEAD = 64 << 10
_TAIL = 256 << 10
_WORDS = 2048
"""Of a text whose end is not among the `_HEAD`."""
_PROMPT = 256
"""Of a completion's prompt, which has no messages in it: its beginning stays while it grows."""
_FAR = 2 << 20
"""From the end: the id of a tool's answer stands before it, and no model reads a longer one. A body made to cost time
takes 20 ms."""
_ECHOES = 8
"""Newest ids of a request that are looked up."""
_FOLLOWS = re.compile(rb'"(?:previous_response_id|tool_call_id|tool_use_id|call_id)"\s*:\s*"([^"\\]{1,256})"')
_ID, _LONGEST = b'_id"', 300
"""Their end, and bytes from there in which the id stands."""
_ANSWERED = b'"assistant"'
_MARKS = (b'"trajectory_id"', b'"conversation"', b'"previous_response_id"')
_KEY = re.compile(r'[\s{,]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_ELEMENT = re.compile(r'[\s,\[]*(?=[{"])')
_NO = (None, False, 0, "", "0", "false", "no")


class _Names(msgspec.Struct):
    """What a body says of its run; the rest is skipped unread."""

    conversation: Any = None
    previous_response_id: Any = None
    metadata: Any = None


_names = msgspec.json.Decoder(_Names)
_json = json.JSONDecoder()


def opted_out(body: bytes) -> bool:
    """Whether the body says `metadata.evolved_opt_out`, with any value but false, 0, "no" or an empty one."""
    metadata = _told(body).metadata
    value = metadata.get("evolved_opt_out") if isinstance(metadata, dict) else None
    return (value.strip().lower() if isinstance(value, str) else value) not in _NO


def sampled(request: Request, share: float, *, tenant: str, caller: str) -> bool:
    """Whether the call is among the `share` (0 to 1) that is kept."""
    if share >= 1.0:
        return True
    run, previous = named(request)
    said = b"t\x1f" + run if run else b"r\x1f" + previous if previous else b""
    said = said or b"o\x1f%b\x1f%b" % (caller.encode(), opening(request.body))
    # Never a salt: all taps of a tenant must come to the same answer.
    digest = hashlib.blake2b(b"%b\x1f%b" % (tenant.encode("utf-8", "replace"), said), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def named(request: Request) -> tuple[bytes, bytes]:
    """The run that a call names, by header, address or body, and the response that it follows."""
    if request.head.run:
        return request.head.run.encode("utf-8", "replace"), b""
    if not any(_at_an_end(request.body, mark) for mark in _MARKS):
        return b"", b""
    told = _told(request.body)
    run = told.metadata.get("trajectory_id") if isinstance(told.metadata, dict) else None
    run = run or (told.conversation.get("id") if isinstance(told.conversation, dict) else told.conversation)
    run = run.strip() if isinstance(run, str) else ""
    previous = told.previous_response_id if isinstance(told.previous_response_id, str) else ""
    return run.encode("utf-8", "replace"), previous.encode("utf-8", "replace")


def newest_ids(body: bytes) -> list[bytes]:
    """The ids of responses and tool calls that a request goes on from, the newest first."""
    found, first, end = list[bytes](), max(0, len(body) - _FAR), len(body)
    while not found and (end := body.rfind(_ID, first, end)) >= 0:
        found = _FOLLOWS.findall(body, max(0, end - _TAIL), end + _LONGEST)
        end = max(first, end - _TAIL + _LONGEST)
    return telling(reversed(found))[:_ECHOES]


def telling(ids: Iterable[bytes]) -> list[bytes]:
    """Each of `ids` once, without those that many conversations have in common."""
    return [one for one in dict.fromkeys(ids) if not guessable(one.decode("latin-1"))]


def goes_on(body: bytes) -> bool:
    """Whether something was answered in this conversation before."""
    return _at_an_end(body, _ANSWERED)


def opening(body: bytes) -> bytes:
    """What is said first, up to the first words of a user: all calls of a conversation open with it."""
    text, at = body[:_HEAD].decode("utf-8", "replace"), 0
    try:
        while (found := _KEY.match(text, at)) is not None:
            name, at = found[1], found.end()
            if name == "prompt":
                return text[at : at + _PROMPT].encode("utf-8", "replace")
            if name in ("messages", "input"):
                return "\x1f".join(_said(text, at)).encode("utf-8", "replace")
            at = _json.raw_decode(text, at)[1]
    except (ValueError, RecursionError):
        pass
    return b"b\x1f" + body[:_WORDS]


def _said(text: str, at: int) -> Iterator[str]:
    """The contents of the messages there. A text alone is told as it stands in the list that the same client sends from
    the second call on.
    """
    while (found := _ELEMENT.match(text, at)) is not None:
        start = found.end()
        try:
            one, at = _json.raw_decode(text, start)
        except ValueError:
            yield text[start : start + _WORDS]
            return
        alone = isinstance(one, str)
        yield json.dumps(one if alone else one.get("content"), sort_keys=True)
        if alone or one.get("role") == "user":
            return


def _at_an_end(body: bytes, mark: bytes) -> bool:
    return body.find(mark, 0, _HEAD) >= 0 or body.rfind(mark, max(_HEAD, len(body) - _TAIL)) >= 0


def _told(body: bytes) -> _Names:
    try:
        return _names.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Names()
