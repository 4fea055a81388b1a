"""How the spool lies on disk: a directory of append-only segments and a cursor.

A segment is a run of records, each `[u32 length][u32 crc32][16-byte id][payload]` (little-endian; the checksum covers
id and payload). The writer starts a new segment whenever it starts, so the torn tail that a crash leaves behind is
always the end of a segment. The cursor is the reader's: everything before it is published.
"""

import contextlib
import os
import struct
import zlib
from pathlib import Path

import msgspec

HEADER = struct.Struct("<II16s")
MAX_PAYLOAD = 512 << 20
"""A length above it is no length: the bytes are torn or corrupt."""


def frame(record_id: bytes, payload: bytes) -> bytes:
    """One record as it stands in a segment."""
    return HEADER.pack(len(payload), zlib.crc32(payload, zlib.crc32(record_id)), record_id) + payload


def segment_path(directory: Path, number: int) -> Path:
    """Where segment `number` lies."""
    return directory / f"{number:012d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """The segments that exist, ascending; none if there is no directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".seg") and name[:-4].isdigit())


class Position(msgspec.Struct, frozen=True):
    """A place in the spool: everything before it is published."""

    segment: int = -1
    offset: int = 0


class Cursor(Position, frozen=True):
    """What the reader has committed."""

    sequence: int = 0
    """The highest number that the stream behind had given by then; 0 if it is not known."""


def read_cursor(directory: Path) -> Cursor:
    """The reader's committed position; the beginning if there is none, or none that can be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((directory / "cursor").read_bytes(), type=Cursor)
    return Cursor()


def spool_bytes(directory: Path) -> int:
    """Size of all segments."""
    total = 0
    for number in segment_numbers(directory):
        with contextlib.suppress(FileNotFoundError):
            total += segment_path(directory, number).stat().st_size
    return total
