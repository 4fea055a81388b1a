"""The spool: what was captured and is not on the bus yet, as a directory of append-only segments and a cursor.

    recorder, OTLP receiver -> SpoolWriter -> segments -> SpoolReader -> shipper

A segment is a run of records, each `[mark][u32 length][u32 crc32][16-byte id][payload]` (little-endian; the checksum
covers id and payload). The mark is eight random bytes of the segment's own, which stand in its name, NUMBER-MARK.seg.
By it the next record is found, whatever a flipped bit makes of a length; and nobody who cannot read the disk can write
one into a payload.

A writer starts a new segment whenever it starts, so the torn tail that a crash leaves behind is always the end of a
segment. The cursor is the reader's: everything before it is published. Broker and daemon may be away for as long as the
quota lasts.
"""

import contextlib
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from actors.messages import Exchange, Feedback, MessageError, decode
from actors.messages.files import lock, write_whole

_MARK = 8
_HEAD = struct.Struct("<II16s")
FRAME_BYTES = _MARK + _HEAD.size
"""Of a record, beside its payload."""
MAX_PAYLOAD = 512 << 20
"""A length above it is no length: the bytes are torn or corrupt."""
SEGMENT_BYTES = 64 << 20
"""A whole one is removed at a time, and read again from its beginning after a loss."""
_SEGMENT_SECONDS = 600.0
"""After which what was written is in a segment that has ended, and goes as soon as it is published."""
_LOOK_SECONDS = 1.0
"""How often all spools are measured."""
_SEARCH_BYTES = 1 << 20
OTLP = "otlp"
"""Directory of the spool for calls that came as telemetry; those of taps are numbers."""
_NAME = re.compile(r"\d{12}-[0-9a-f]{16}\.seg")


class Record(NamedTuple):
    """What is written, and read."""

    id: bytes
    """16 bytes."""
    payload: bytes


class Cursor(msgspec.Struct, frozen=True):
    """What the reader has committed."""

    segment: Annotated[str, msgspec.Meta(pattern=f"^({_NAME.pattern})?$")] = ""
    offset: int = 0
    sequence: int = 0
    """The highest number that the stream behind had given by then; 0 if it is not known."""


def read_cursor(directory: Path) -> Cursor:
    """The committed position; the beginning if there is none, or none that can be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((directory / "cursor").read_bytes(), type=Cursor)
    return Cursor()


def segments(directory: Path) -> dict[str, int]:
    """The names of the segments that exist, oldest first, and their sizes; none if there is no directory."""
    found: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(filter(_NAME.fullmatch, os.listdir(directory))):
            # One by one after the list: what has a later one beside it there is finished, and so is its size.
            with contextlib.suppress(FileNotFoundError):
                found[name] = (directory / name).stat().st_size
    return found


def spools(base: Path) -> list[Path]:
    """The directories of all taps of this machine, those of the past included, and of `OTLP`.

    Raises:
        OSError: `base` is there and cannot be read.
    """
    try:
        return sorted(path for path in base.iterdir() if (path.name.isdigit() or path.name == OTLP) and path.is_dir())
    except FileNotFoundError:
        return []


def spool_bytes(directory: Path) -> int:
    return sum(segments(directory).values())


def spool_age(directory: Path, now: float) -> float:
    """Seconds since the oldest record that is not published was made; 0 if all are published or it cannot be read."""
    with contextlib.suppress(OSError, MessageError):
        for record in SpoolReader(directory).read(1):
            made = decode(record.payload)
            if isinstance(made, Exchange):
                return max(0.0, now - made.started - made.duration)
            return max(0.0, now - made.received) if isinstance(made, Feedback) else 0.0
    return 0.0


def frame(record: Record, mark: bytes) -> bytes:
    checksum = zlib.crc32(record.payload, zlib.crc32(record.id))
    return mark + _HEAD.pack(len(record.payload), checksum, record.id) + record.payload


class SpoolWriter:
    """Appends records to segments. It blocks on the disk; one call at a time."""

    def __init__(self, directory: Path, disk_bytes: int = 8 << 30, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """The directory is created when first needed, for the owner alone. `disk_bytes` is the quota of all spools
        beside it together.
        """
        self.directory, self._quota, self._segment_bytes = directory, disk_bytes, segment_bytes
        self.disk_bytes = 0
        """Size of all segments, those of the past and of other taps included, as of the last look."""
        self.full = False
        """The quota was reached."""
        self._lock = self._file = -1
        self._mark = b""
        self._size = self._safe = 0
        """Of the segment, and of what of it no power failure takes."""
        self._began = self._looked = 0.0

    @property
    def dirty(self) -> bool:
        """Something was written that is not safe."""
        return self._size > self._safe

    def append(self, records: Sequence[Record]) -> bool:
        """Write `records`; False if the quota forbids it.

        Raises:
            OSError: they are not written, or some of them may be.
        """
        # Somebody may have removed the directory under us: an unlinked file takes writes and keeps nothing.
        gone = self._file >= 0 and os.fstat(self._file).st_nlink == 0
        if self._file < 0 or gone or self._size >= self._segment_bytes:
            self._roll()
        self.tend()
        data = b"".join([frame(record, self._mark) for record in records])
        self.full = self.disk_bytes + len(data) > self._quota
        if self.full:
            return False
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # Half a record must not stand in the middle of a segment.
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                self._leave()
            raise
        self._size += len(data)
        self.disk_bytes += len(data)
        return True

    def sync(self) -> None:
        """Make safe from a power failure what was written.

        Raises:
            OSError: what was not safe is to be written again. The kernel forgets what it could not write, and the next
                sync would say that all is well: this segment ends with what is safe.
        """
        if self.dirty:
            try:
                os.fdatasync(self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._safe)
                self._leave()
                raise
            self._safe = self._size

    def tend(self) -> None:
        """Also for the times when nothing comes: see whether there is room, and end a segment that is old."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._look()
            self.full = self.full and self.disk_bytes >= self._quota
        if self._size and now - self._began > _SEGMENT_SECONDS:
            self._roll()

    def close(self) -> None:
        self._leave()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _roll(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._lock < 0:
            # A tap that is still draining may hold it; ours are kept in memory until it lets go.
            self._lock = lock(self.directory / "writer.lock")
        self.sync()
        self._leave()
        self._look()
        last = max([*segments(self.directory), read_cursor(self.directory).segment])
        self._mark = os.urandom(_MARK)
        path = self.directory / f"{int(last[:12] or -1) + 1:012d}-{self._mark.hex()}.seg"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._began = time.monotonic()

    def _leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size, self._safe = -1, 0, 0

    def _look(self) -> None:
        self._looked = time.monotonic()
        self.disk_bytes = spool_bytes(self.directory)
        with contextlib.suppress(OSError):  # of another owner: their own tap fails over it, not this one
            others = (one for one in spools(self.directory.parent) if one != self.directory)
            self.disk_bytes += sum(map(spool_bytes, others))


class SpoolReader:
    """Reads the spool from its cursor on. Blocking, but only on the local disk."""

    def __init__(
        self, directory: Path, *, keep_seconds: float = 300.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Published segments stay for `keep_seconds` of this reader's life, whatever the time of day does: a broker
        that lost power may have acked what it had not written, and it can be published again from here (`rewind`).
        """
        self.directory, self._keep, self._monotonic = directory, keep_seconds, monotonic
        self._published: dict[str, float] = {}
        """Segments that are kept, and when they were found published (`monotonic`)."""
        cursor = read_cursor(directory)
        self._segment, self._offset, self.sequence = cursor.segment, cursor.offset, cursor.sequence
        self._committed = self._segment, self._offset
        self._barren = 0
        """Size of the segment when nothing more was found in it."""
        self.torn = 0
        """Places where bytes were skipped."""

    @property
    def moved(self) -> bool:
        """Whether there is something to commit: what was read, or segments with nothing in them."""
        return (self._segment, self._offset) != self._committed

    def read(self, limit: int = 256, max_bytes: int = 8 << 20) -> list[Record]:
        """The next records, at most `limit`, and no more once `max_bytes` are reached; empty if there are none yet. A
        record that is damaged is skipped, up to the next that is whole.
        """
        found: list[Record] = []
        room = max_bytes
        while True:
            # Looked for first: a segment is finished as soon as there is a later one, not a moment sooner.
            there = segments(self.directory)
            length, later = there.get(self._segment, 0), [name for name in there if name > self._segment]
            if length > self._offset and (later or length != self._barren):
                for record in self._rest():
                    found.append(record)
                    room -= len(record.payload)
                    if len(found) >= limit or room <= 0:
                        return found
            if not later:
                self._barren = length
                return found
            self.torn += length > self._offset
            self._go_to(later[0])

    def commit(self, sequence: int = 0) -> None:
        """All that was read is published: remember it, and the stream's highest number by then."""
        self.sequence = sequence
        self._remember(self._segment, self._offset)

    def rewind(self) -> int:
        """Go back to the first record that is published and still there; returns the bytes that come again. If the disk
        fails, nothing has changed.
        """
        cursor, there = read_cursor(self.directory), segments(self.directory)
        back = [name for name in there if name < cursor.segment or (name == cursor.segment and cursor.offset)]
        if back:
            self._remember(back[0], 0)
            self._go_to(back[0])
        return sum(there[name] for name in back)

    def sweep(self, keep_bytes: int, *, aged: bool = True) -> None:
        """Delete published segments: those kept long enough, if `aged`, and the oldest above `keep_bytes`, as what is
        kept takes room from what is not yet published.
        """
        now, cursor = self._monotonic(), read_cursor(self.directory)
        sizes = {name: size for name, size in segments(self.directory).items() if name < cursor.segment}
        self._published = {name: self._published.get(name, now) for name in sizes}
        total = sum(sizes.values())
        for name, size in sizes.items():
            if total > keep_bytes or (aged and now - self._published[name] > self._keep):
                (self.directory / name).unlink(missing_ok=True)
                total -= size

    def lag_bytes(self) -> int:
        rest = {name: size for name, size in segments(self.directory).items() if name >= self._segment}
        return max(0, sum(rest.values()) - (self._offset if self._segment in rest else 0))

    def _go_to(self, segment: str) -> None:
        self._segment, self._offset, self._barren = segment, 0, 0

    def _remember(self, segment: str, offset: int) -> None:
        cursor = msgspec.json.encode(Cursor(segment, offset, self.sequence))
        write_whole(self.directory / "cursor", cursor, sync=False)
        self._committed = segment, offset

    def _rest(self) -> Iterator[Record]:
        """The whole records that follow in this segment."""
        try:
            file = os.open(self.directory / self._segment, os.O_RDONLY)
        except FileNotFoundError:
            return
        mark = bytes.fromhex(self._segment[13:29])
        try:
            while True:
                record = _record(file, self._offset, mark)
                if record is None:
                    following = _next(file, self._offset + 1, mark)
                    if following < 0:
                        return
                    # It may have been written to its end between the two looks; what lies before a mark is all there.
                    record = _record(file, self._offset, mark)
                    if record is None:
                        self.torn += 1
                        self._offset = following
                        continue
                self._offset += FRAME_BYTES + len(record.payload)
                yield record
        finally:
            os.close(file)


def _record(file: int, offset: int, mark: bytes) -> Record | None:
    """The record at `offset`; None if it is damaged, or not all of it is there yet."""
    head = os.pread(file, FRAME_BYTES, offset)
    if len(head) < FRAME_BYTES or not head.startswith(mark):
        return None
    length, checksum, record_id = _HEAD.unpack_from(head, _MARK)
    # Zero is never written: a file system that lost power leaves runs of zeros.
    if not 0 < length <= MAX_PAYLOAD:
        return None
    payload = os.pread(file, length, offset + FRAME_BYTES)
    whole = len(payload) == length and zlib.crc32(payload, zlib.crc32(record_id)) == checksum
    return Record(record_id, payload) if whole else None


def _next(file: int, offset: int, mark: bytes) -> int:
    """Where the next record begins at `offset` or later; -1 if none does."""
    while data := os.pread(file, _SEARCH_BYTES, offset):
        place = data.find(mark)
        if place >= 0:
            return offset + place
        if len(data) < _SEARCH_BYTES:
            break
        offset += len(data) - _MARK + 1
    return -1
