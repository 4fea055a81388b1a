"""What tap and recorder say to each other over their socket.

tap -> recorder: frames of `[u32 length][16-byte id][payload]`; the first payload is the `Order` in JSON, all others are
`Copied`.
recorder -> tap: lines of JSON, each a `Progress` since the recorder's start.
"""

import struct
from typing import Any

import msgspec

from actors.messages import Exchange, Feedback

HEAD = struct.Struct("<I16s")
RECORDERS_ENDED = "recorders_ended"
"""`error` of a call of which the tap sends the head alone: recorders ended over it as it was."""
UNREADABLE = "[REDACTED:unreadable]"
"""In place of words that could not be searched."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder is told at its start."""

    directory: str
    memory_bytes: int
    """What it may hold beyond what the disk takes: the rest it leaves to the tap."""
    disk_bytes: int
    redaction: dict[str, Any] = {}
    """Fields of `adapters.redaction.RedactionSettings`."""


class Copied(msgspec.Struct, frozen=True, array_like=True):
    """A record as the tap has it, with what its sender wrote: none of it is for the disk."""

    record: Exchange | Feedback
    """Of a call what the tap knows without understanding it: its bodies are as they went by, de-chunked, `error` says
    why it is not complete, and the hints are those of the head."""
    encoding: str = ""
    """Content encoding of the response."""


class Progress(msgspec.Struct, kw_only=True):
    """What has become of the records. The recorder keeps one, each field of which has one thread that writes it."""

    settled: int = 0
    """Records that need no further care: they are written, or shed."""
    shed: int = 0
    safe: int = 0
    """Records that a power failure does not take: the disk was told to keep them and said that it had."""
    redacted: int = 0
    unreadable: dict[str, int] = {}
    """By dialect: calls kept without the response that the agent had, as it could not be read."""
    errors: int = 0
    """Failed writes."""
    disk_bytes: int = 0
    healthy: bool = True
    """False from a failed write until one succeeds."""
    full: bool = False


encode_copied = msgspec.msgpack.Encoder().encode
decode_copied = msgspec.msgpack.Decoder(Copied).decode
decode_progress = msgspec.json.Decoder(Progress).decode
