"""What tap and recorder say to each other over their socket.

tap -> recorder: payloads, each behind its length (u32). The first is the `Order` in JSON, all others are `Copied`.
recorder -> tap: lines of JSON, each a `Progress`.
"""

import struct
from typing import Any

import msgspec

from actors.messages import Exchange, Feedback

LENGTH = struct.Struct("<I")
RECORDERS_ENDED = "recorders ended over it"
"""`error` of a call of which the tap sends the head alone."""
UNREADABLE = "[REDACTED:unreadable]"
"""In place of words that could not be searched."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder is told at its start."""

    directory: str
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


class Progress(msgspec.Struct, frozen=True):
    """How a recorder is doing."""

    counts: dict[str, int] = {}
    """Since its start. Records that need no further care: `written`, so that no power failure takes them, or
    `shed_disk`, because of the quota. `errors`: failed writes. `redacted`: records in which something was taken out.
    `unnamed`: calls without the name of their agent. `unreadable_DIALECT`: those without the response that it had.
    """
    disk_bytes: int = 0
    healthy: bool = True
    """False from a failed write until one succeeds."""
    full: bool = False


encode_copied = msgspec.msgpack.Encoder().encode
decode_copied = msgspec.msgpack.Decoder(Copied).decode
decode_progress = msgspec.json.Decoder(Progress).decode
