"""Spans and log records without their wire format: what the two encodings of OTLP agree on."""

from typing import Any

import msgspec

NANO = 1e-9
"""Times on the wire are in nanoseconds."""
MAX_DEPTH = 32
"""Of values in values."""

Key = tuple[bytes, bytes]
"""Trace id (16 bytes) and span id (8 bytes)."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has ended."""

    key: Key
    name: str = ""
    started: float = 0.0
    """Unix seconds."""
    ended: float = 0.0
    attributes: dict[str, Any] = {}
    """Values as JSON has them; bytes stay bytes."""
    resource: dict[str, Any] = {}
    """Attributes of who sent it."""
    failed: bool = False


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """A log record that is an event."""

    key: Key
    """Of the span that it was written in."""
    name: str
    """Of the event."""
    at: float = 0.0
    """Unix seconds; when it was observed, if its writer does not say when it happened."""
    body: Any = None
    attributes: dict[str, Any] = {}
    resource: dict[str, Any] = {}


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an exporter."""

    spans: tuple[Span, ...] = ()
    logs: tuple[Log, ...] = ()
    refused: int = 0
    """Records with ids that are none."""


class Taken:
    """The ids of an export's records; counts those that are none."""

    def __init__(self) -> None:
        self.refused = 0

    def key(self, trace: bytes, span: bytes) -> Key | None:
        """The record's key, None if it can have none."""
        if len(trace) == 16 and len(span) == 8 and any(trace) and any(span):
            return trace, span
        self.refused += 1
        return None


def is_event(name: str) -> bool:
    """Whether a log record of this event name can be of use; all others are let go unread."""
    return name.startswith("gen_ai.")
