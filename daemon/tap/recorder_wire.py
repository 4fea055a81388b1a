"""What tap and recorder say to each other over their socket.

tap -> recorder: frames of `[u32 length][16-byte id][payload]`; the first payload is the `Order` in JSON, all others are
records.
recorder -> tap: lines of JSON, each a `Progress` since the recorder's start.
"""

import struct
from typing import Any

import msgspec

HEAD = struct.Struct("<I16s")
RECORDERS_ENDED = "recorders_ended"
"""`problem` of a call of which the tap sends the head alone: recorders ended over it as it was."""
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


progress_decoder = msgspec.json.Decoder(Progress)
