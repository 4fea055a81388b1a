"""The shipper's side of the spool: reads what the tap wrote, in order, and remembers how far it is published."""

import contextlib
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from actors.messages import MessageError
from actors.messages.spool import RawExchange, decode_spooled
from daemon.tap.segments import HEADER, MAX_PAYLOAD, Position, read_cursor, segment_numbers, segment_path


class Spooled(msgspec.Struct, frozen=True):
    """A record as it was read."""

    id: bytes
    payload: bytes
    after: Position
    """To be committed once this record, and all before it, are published."""


class SpoolReader:
    """Reads the spool from its cursor on. Blocking, but only on the local disk."""

    def __init__(self, directory: Path, *, keep_seconds: float = 300.0, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            directory: need not exist yet.
            keep_seconds: published segments are kept for so long: a broker that lost power may have acked records
                that it had not written, and they can be published again from here.
            clock: unix seconds.
        """
        self._directory, self._keep, self._clock = directory, keep_seconds, clock
        self._at = read_cursor(directory)
        self._barren: tuple[Position, int] | None = None
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
        """The next records, at most `limit`, and no more once `max_bytes` are reached; empty if there are none yet.

        A record whose checksum is wrong is skipped; so is the rest of a segment whose next length cannot be right.

        Raises:
            OSError: the disk failed.
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

    def commit(self, position: Position) -> None:
        """Everything before `position` is published: remember it.

        Raises:
            OSError: the disk failed; the records will be published again after a restart.
        """
        aside = self._directory / "cursor.part"
        aside.write_bytes(msgspec.json.encode(position))
        aside.replace(self._directory / "cursor")

    def sweep(self) -> int:
        """Delete segments that were published and have been kept long enough; returns how many."""
        done = read_cursor(self._directory).segment
        removed = 0
        for number in segment_numbers(self._directory):
            path = segment_path(self._directory, number)
            with contextlib.suppress(FileNotFoundError):
                if number < done and path.stat().st_mtime < self._clock() - self._keep:
                    path.unlink()
                    removed += 1
        return removed

    def lag_bytes(self) -> int:
        """Bytes between the position and the end of the spool."""
        later = (number for number in segment_numbers(self._directory) if number > self._at.segment)
        return max(0, self._size(self._at.segment) - self._at.offset) + sum(self._size(number) for number in later)

    def _collect(self, found: list[Spooled], limit: int, max_bytes: int) -> bool:
        """Add the whole records that follow in this segment; True if a limit ended it."""
        try:
            file = os.open(segment_path(self._directory, self._at.segment), os.O_RDONLY)
        except FileNotFoundError:
            return False
        size = sum(len(record.payload) for record in found)
        try:
            while len(found) < limit and size < max_bytes:
                offset = self._at.offset
                head = os.pread(file, HEADER.size, offset)
                if len(head) < HEADER.size:
                    return False
                length, checksum, record_id = HEADER.unpack(head)
                # Zero is never written: a file system that lost power leaves runs of zeros.
                if not 0 < length <= MAX_PAYLOAD:
                    return False
                payload = os.pread(file, length, offset + HEADER.size)
                if len(payload) < length:
                    return False
                self._at = Position(self._at.segment, offset + HEADER.size + length)
                if zlib.crc32(payload, zlib.crc32(record_id)) == checksum:
                    found.append(Spooled(record_id, payload, self._at))
                    size += length
                else:
                    self.torn += 1
            return True
        finally:
            os.close(file)

    def _following(self) -> int | None:
        return next((number for number in segment_numbers(self._directory) if number > self._at.segment), None)

    def _size(self, number: int) -> int:
        try:
            return segment_path(self._directory, number).stat().st_size
        except FileNotFoundError:
            return 0


def spool_age(directory: Path, now: float) -> float:
    """Seconds since the oldest record that is not published was made; 0 if all are published or it cannot be read."""
    with contextlib.suppress(OSError, MessageError):
        for record in SpoolReader(directory).read(1):
            made = decode_spooled(record.payload)
            return max(0.0, now - (made.finished if isinstance(made, RawExchange) else made.received))
    return 0.0
