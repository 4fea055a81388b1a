"""Which conversations are kept of those that are sampled: the same answer for every call of one.

A coin for every call would cut trajectories to pieces, so what all calls of a conversation have in common is hashed:
the trajectory that they name, else the key and the opening, up to the user's first words. Conversations that open with
the same words are kept or left out together; calls of the responses API that name only the response before them share
nothing with it, and are drawn for one by one unless they name their trajectory.
"""

import hashlib
from typing import Any

import msgspec

from daemon.tap.request import Request

_HEAD = 4096
_PROMPT_HEAD = 256
"""Of a completion's prompt, which has no messages in it: its beginning stays while it grows."""
_NO = (None, False, 0, "", "0", "false", "no")


class _Said(msgspec.Struct):
    role: Any = None
    content: msgspec.Raw = msgspec.Raw()


class _Body(msgspec.Struct):
    """What tells conversations apart in the four dialects; the rest is skipped unread."""

    messages: list[_Said] = []
    input: list[_Said] | str = ""
    prompt: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    conversation: Any = None
    previous_response_id: Any = None
    metadata: Any = None


class _Marked(msgspec.Struct):
    metadata: Any = None


_body = msgspec.json.Decoder(_Body)
_marked = msgspec.json.Decoder(_Marked)


def opted_out(body: bytes) -> bool:
    """Whether the body says `metadata.evolved_opt_out`, with any value but false, 0, "no" or an empty one."""
    try:
        metadata = _marked.decode(body).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    value = metadata.get("evolved_opt_out") if isinstance(metadata, dict) else None
    return (value.strip().lower() if isinstance(value, str) else value) not in _NO


def sampled(request: Request, share: float, *, tenant: str, caller: str, trajectory: bytes) -> bool:
    """Whether the call is among the `share` (0 to 1) that is kept; its header may name a `trajectory`."""
    if share >= 1.0:
        return True
    named = trajectory.strip()
    said = b"t\x1f" + named if named else _conversation(request, caller)
    # Never a salt: all taps of a tenant must come to the same answer.
    digest = hashlib.blake2b(b"%b\x1f%b" % (tenant.encode("utf-8", "replace"), said), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _conversation(request: Request, caller: str) -> bytes:
    if request.upload is not None:
        # Too large to be held, so not to be looked into: each of these is drawn for on its own.
        return b"u\x1f%r" % request.received
    try:
        told = _body.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b"b\x1f" + request.body[:_HEAD]
    named = told.metadata.get("trajectory_id") if isinstance(told.metadata, dict) else None
    named = named or (told.conversation.get("id") if isinstance(told.conversation, dict) else told.conversation)
    if isinstance(named, str) and named.strip():
        return b"t\x1f" + named.strip().encode("utf-8", "replace")
    if isinstance(told.previous_response_id, str) and told.previous_response_id:
        return b"r\x1f" + told.previous_response_id.encode("utf-8", "replace")
    return b"o\x1f%b\x1f%b" % (caller.encode(), _opening(told))


def _opening(told: _Body) -> bytes:
    parts = [bytes(told.system), bytes(told.instructions), bytes(told.prompt)[:_PROMPT_HEAD]]
    said = told.messages
    if told.input and isinstance(told.input, str):
        # As it stands in the list that the same client sends from the second call on.
        parts.append(msgspec.json.encode(told.input))
    elif told.input:
        said = told.input
    for one in said:
        parts.append(bytes(one.content))
        if one.role == "user":
            break
    return b"\x1f".join(parts)
