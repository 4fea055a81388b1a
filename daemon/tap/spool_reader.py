"""The shipper's side of the spool: reads what the tap wrote, in order, and remembers how far it is published."""

import contextlib
import mmap
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors.messages import Exchange, Feedback, MessageError, decode
from actors.messages.files import write_whole
from daemon.tap.segments import (
    HEAD_BYTES,
    HEADER,
    MAX_PAYLOAD,
    Cursor,
    Position,
    mark_of,
    read_cursor,
    segment_numbers,
    segment_path,
)


class Spooled(msgspec.Struct, frozen=True):
    """A record as it was read."""

    id: bytes
    payload: bytes
    after: Position
    """To be committed once this record, and all before it, are published."""


class SpoolReader:
    """Reads the spool from its cursor on. Blocking, but only on the local disk."""

    def __init__(
        self,
        directory: Path,
        *,
        keep_seconds: float = 300.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Published segments stay for `keep_seconds` of this reader's life, whatever the time of day does: a broker
        that lost power may have acked what it had not written, and it can be published again from here (`rewind`).
        """
        self.directory, self._keep = directory, keep_seconds
        self._monotonic = monotonic
        self._published_at: dict[int, float] = {}
        """Segments that are kept, and when they were found published (`monotonic`)."""
        cursor = read_cursor(directory)
        self._at = Position(cursor.segment, cursor.offset)
        self.sequence = cursor.sequence
        self._barren: tuple[Position, int] | None = None
        self._marked = (-1, b"")
        self.torn = 0
        """Places where bytes were skipped."""

    @property
    def position(self) -> Position:
        """Behind the last record that was read."""
        return self._at

    def ready(self) -> bool:
        """Whether `read` may find something; costs two looks at the directory."""
        size = self._size(self._at.segment)
        if size > self._at.offset and self._barren != (self._at, size):
            return True
        return self._following() is not None

    def read(self, limit: int = 256, max_bytes: int = 8 << 20) -> list[Spooled]:
        """The next records, at most `limit`, and no more once `max_bytes` are reached; empty if there are none yet. A
        record that is damaged is skipped, up to the next that is whole.
        """
        found: list[Spooled] = []
        while True:
            # Looked for first: a segment is finished as soon as there is a later one, not a moment sooner.
            following = self._following()
            if self._collect(found, limit, max_bytes):
                return found
            size = self._size(self._at.segment)
            if following is None:
                self._barren = (self._at, size)
                return found
            if size > self._at.offset:
                self.torn += 1
            self._at = Position(following, 0)

    def commit(self, position: Position, sequence: int = 0) -> None:
        """Everything before `position` is published: remember it, and the stream's highest number by then."""
        self.sequence = sequence
        cursor = Cursor(position.segment, position.offset, sequence)
        write_whole(self.directory / "cursor", msgspec.json.encode(cursor), sync="none")

    def rewind(self) -> int:
        """Go back to the first record that is published and still there; returns the bytes that come again. If the disk
        fails, nothing has changed.
        """
        back = [number for number, _ in self._kept(read_cursor(self.directory))]
        if not back:
            return 0
        size = sum(self._size(number) for number in back)
        self.commit(Position(back[0], 0), self.sequence)
        self._at, self._barren = Position(back[0], 0), None
        return size

    def sweep(self, keep_bytes: int, *, aged: bool = True) -> int:
        """Delete published segments: those kept long enough, if `aged`, and the oldest above `keep_bytes`, as what is
        kept takes room from what is not yet published; returns how many.
        """
        cursor = read_cursor(self.directory)
        kept = [(number, found) for number, found in self._kept(cursor) if number < cursor.segment]
        now = self._monotonic()
        self._published_at = {number: self._published_at.get(number, now) for number, _ in kept}
        size, removed = sum(found.st_size for _, found in kept), 0
        for number, found in kept:
            if size > keep_bytes or (aged and now - self._published_at[number] > self._keep):
                segment_path(self.directory, number).unlink(missing_ok=True)
                size -= found.st_size
                removed += 1
        return removed

    def lag_bytes(self) -> int:
        later = (number for number in segment_numbers(self.directory) if number > self._at.segment)
        return max(0, self._size(self._at.segment) - self._at.offset) + sum(self._size(number) for number in later)

    def _collect(self, found: list[Spooled], limit: int, max_bytes: int) -> bool:
        """Add the whole records that follow in this segment; True if a limit ended it."""
        try:
            file = os.open(segment_path(self.directory, self._at.segment), os.O_RDONLY)
        except FileNotFoundError:
            return False
        size, segment = sum(len(record.payload) for record in found), self._at.segment
        try:
            mark = self._mark(file)
            if not mark:
                return False
            self._at = Position(segment, max(self._at.offset, HEAD_BYTES))
            while len(found) < limit and size < max_bytes:
                record = _record(file, segment, self._at.offset, mark)
                if record is None:
                    offset = _next(file, self._at.offset + 1, mark)
                    if offset < 0:
                        return False
                    # It may have been written to its end between the two looks; what lies before a mark is all there.
                    record = _record(file, segment, self._at.offset, mark)
                    if record is None:
                        self.torn += 1
                        self._at = Position(segment, offset)
                        continue
                self._at = record.after
                if record.id:
                    found.append(record)
                    size += len(record.payload)
                else:
                    self.torn += 1
            return True
        finally:
            os.close(file)

    def _mark(self, file: int) -> bytes:
        if self._marked[0] != self._at.segment or not self._marked[1]:
            self._marked = (self._at.segment, mark_of(os.pread(file, 2 * HEAD_BYTES, 0)))
        return self._marked[1]

    def _kept(self, cursor: Position) -> list[tuple[int, os.stat_result]]:
        """The segments of which something is published, ascending; the last may be the one that is being read."""
        found: list[tuple[int, os.stat_result]] = []
        for number in segment_numbers(self.directory):
            if number < cursor.segment or (number == cursor.segment and cursor.offset > 0):
                with contextlib.suppress(FileNotFoundError):
                    found.append((number, segment_path(self.directory, number).stat()))
        return found

    def _following(self) -> int | None:
        return next((number for number in segment_numbers(self.directory) if number > self._at.segment), None)

    def _size(self, number: int) -> int:
        try:
            return segment_path(self.directory, number).stat().st_size
        except FileNotFoundError:
            return 0


def _record(file: int, segment: int, offset: int, mark: bytes) -> Spooled | None:
    """The record at `offset`; without an id if its checksum is wrong, None if there is none, or not all of it yet."""
    head = os.pread(file, len(mark) + HEADER.size, offset)
    if len(head) < len(mark) + HEADER.size or not head.startswith(mark):
        return None
    length, checksum, record_id = HEADER.unpack(head[len(mark) :])
    # Zero is never written: a file system that lost power leaves runs of zeros.
    if not 0 < length <= MAX_PAYLOAD:
        return None
    start = offset + len(head)
    payload = os.pread(file, length, start)
    if len(payload) < length:
        return None
    if zlib.crc32(payload, zlib.crc32(record_id)) == checksum:
        return Spooled(record_id, payload, Position(segment, start + length))
    # Of a length that is wrong too the end is nowhere: what is marked as the next record counts.
    after = _next(file, start, mark)
    return Spooled(b"", b"", Position(segment, min(after, start + length) if after >= 0 else start + length))


def _next(file: int, offset: int, mark: bytes) -> int:
    """Where the next record begins at `offset` or later; -1 if none does."""
    if os.fstat(file).st_size <= offset:
        return -1
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as data:
        return data.find(mark, offset)


def spool_age(directory: Path, now: float) -> float:
    """Seconds since the oldest record that is not published was made; 0 if all are published or it cannot be read."""
    with contextlib.suppress(OSError, MessageError):
        for record in SpoolReader(directory).read(1):
            made = decode(record.payload)
            if isinstance(made, Exchange):
                return max(0.0, now - made.started - made.duration)
            return max(0.0, now - made.received) if isinstance(made, Feedback) else 0.0
    return 0.0
