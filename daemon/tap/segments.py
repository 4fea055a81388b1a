"""How the spool lies on disk: a directory of append-only segments and a cursor.

A segment is a head and a run of records, each `[mark][u32 length][u32 crc32][16-byte id][payload]` (little-endian; the
checksum covers id and payload). The mark is eight random bytes of the segment's own, which its head says twice. By it
the next record is found, whatever a flipped bit makes of a length; and nobody who cannot read the disk can write one
into a payload.

The writer starts a new segment whenever it starts, so the torn tail that a crash leaves behind is always the end of a
segment. The cursor is the reader's: everything before it is published.
"""

import contextlib
import os
import struct
import zlib
from pathlib import Path

import msgspec

HEADER = struct.Struct("<II16s")
_MAGIC = b"EVSPOOL2"
_MARK = 8
HEAD_BYTES = 2 * len(_MAGIC) + 2 * _MARK
FRAME_BYTES = _MARK + HEADER.size
"""Of a record, beside its payload."""
MAX_PAYLOAD = 512 << 20
"""A length above it is no length: the bytes are torn or corrupt."""
OTLP = "otlp"
"""Directory of the spool for calls that came as telemetry; those of taps are numbers."""


def frame(record_id: bytes, payload: bytes, mark: bytes) -> bytes:
    return mark + HEADER.pack(len(payload), zlib.crc32(payload, zlib.crc32(record_id)), record_id) + payload


def new_mark() -> bytes:
    return os.urandom(_MARK)


def segment_head(mark: bytes) -> bytes:
    return _MAGIC + mark + mark + _MAGIC


def mark_of(start: bytes) -> bytes:
    """The mark of a segment that begins with `start` (its head and a mark); empty if there is no head, or not yet. One
    flipped bit anywhere in it does no harm.
    """
    ends = start[: len(_MAGIC)] + start[HEAD_BYTES - len(_MAGIC) : HEAD_BYTES]
    if len(start) < HEAD_BYTES or (int.from_bytes(ends) ^ int.from_bytes(2 * _MAGIC)).bit_count() > 1:
        return b""
    first, second = start[len(_MAGIC) :][:_MARK], start[len(_MAGIC) + _MARK :][:_MARK]
    return second if start[HEAD_BYTES:].startswith(second) else first


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:012d}.seg"


def segment_numbers(directory: Path) -> list[int]:
    """The segments that exist, ascending; none if there is no directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
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
    total = 0
    for number in segment_numbers(directory):
        with contextlib.suppress(FileNotFoundError):
            total += segment_path(directory, number).stat().st_size
    return total


def spools(base: Path) -> list[Path]:
    """The directories of all taps of this machine, those of the past included, and of `OTLP`.

    Raises:
        OSError: `base` is there and cannot be read.
    """
    try:
        return sorted(path for path in base.iterdir() if (path.name.isdigit() or path.name == OTLP) and path.is_dir())
    except FileNotFoundError:
        return []
