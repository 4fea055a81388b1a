"""What tap and recorder say to each other over their socket.

tap -> recorder: frames of `[u32 length][16-byte id][payload]`; the first payload is the `Order` in JSON, all others are
records.
recorder -> tap: lines of JSON, each a `Progress` since the recorder's start.
"""

import struct
from typing import Any

import msgspec

HEAD = struct.Struct("<I16s")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder is told at its start."""

    directory: str
    memory_bytes: int
    disk_bytes: int
    redaction: dict[str, Any] = {}
    """Fields of `adapters.redaction.RedactionSettings`."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the records."""

    written: int = 0
    safe: int = 0
    """Of these, those that a power failure does not take."""
    shed: int = 0
    redacted: int = 0
    unreadable: int = 0
    """Calls whose response could not be read."""
    errors: int = 0
    disk_bytes: int = 0
    healthy: bool = True
    full: bool = False

    @property
    def settled(self) -> int:
        """Records that need no further care."""
        return self.written + self.shed

    def plus(self, other: "Progress") -> "Progress":
        return Progress(
            written=self.written + other.written,
            shed=self.shed + other.shed,
            redacted=self.redacted + other.redacted,
            unreadable=self.unreadable + other.unreadable,
            errors=self.errors + other.errors,
        )


progress_decoder = msgspec.json.Decoder(Progress)
