"""The recorder's side of the spool: records into segments on disk, in a thread of its own.

What the tap copied lies there until the shipper has published it (`spool_reader`); broker and daemon may be away for as
long as the quota lasts.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from daemon.tap.segments import (
    FRAME_BYTES,
    HEAD_BYTES,
    HEADER,
    MAX_PAYLOAD,
    frame,
    new_mark,
    read_cursor,
    segment_head,
    segment_numbers,
    segment_path,
    spool_bytes,
    spools,
)

_WRITE_BYTES = 4 << 20
_IDLE_SECONDS = 1.0

log = structlog.get_logger(__name__)


class SpoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much the writer may use, and how often it writes."""

    segment_bytes: int = 64 << 20
    """A whole one is removed at a time, and read again from its beginning after a loss."""
    memory_bytes: int = 128 << 20
    disk_bytes: int = 8 << 30
    sync_seconds: float = 0.1
    """At most this often to stable storage: a power failure loses no more than that."""
    tick_seconds: float = 0.02
    """How often waiting records are written."""
    retry_seconds: float = 1.0
    """After a failed write."""


class SpoolWriter:
    """Takes records and writes them in a thread of its own. `offer` does no I/O, blocks only if it is told to be
    patient, and never raises. A disk that fails or is full is retried for as long as the process lives; what does not
    fit is shed and counted.
    """

    def __init__(self, directory: Path, limits: SpoolLimits) -> None:
        """The directory is created when first needed, for the owner alone; it may have one writer at a time."""
        self._directory, self._limits = directory, limits
        self._queue: deque[tuple[bytes, bytes]] = deque()
        # Each of the two is written by one thread only, so their difference needs no lock.
        self._offered_bytes = 0
        self._taken_bytes = 0
        self.shed_memory = 0
        """Records refused because memory was full or the writer closed."""
        self.shed_disk = 0
        """Records refused or dropped because of the quota, or left unwritten at the end."""
        self.written = 0
        self.safe = 0
        """Of these, those that a power failure does not take: the disk was told to keep them and said that it had."""
        self.errors = 0
        self.disk_bytes = 0
        """Size of all segments, those of the past and of other taps included, as of the last look."""
        self.healthy = True
        """False from a failed write until one succeeds."""
        self._full = False
        self._asleep = False
        self._dirty = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._file = -1
        self._mark = b""
        self._lock = -1
        self._size = 0
        self._synced = 0.0
        self._looked = 0.0
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def waiting_bytes(self) -> int:
        return self._offered_bytes - self._taken_bytes

    @property
    def shed(self) -> int:
        return self.shed_memory + self.shed_disk

    @property
    def taking(self) -> bool:
        """Whether a record offered now has a fair chance to reach the disk."""
        return self.healthy and not self._full and not self._closing.is_set()

    def start(self) -> None:
        self._thread.start()

    @property
    def full(self) -> bool:
        return self._full

    def offer(self, record_id: bytes, payload: bytes, *, patient: bool = False) -> bool:
        """Take a record, whose id is 16 bytes; False if it was shed. `patient` waits for room in memory instead: not
        for an event loop.
        """
        size = len(payload) + HEADER.size
        while patient and 0 < self._limits.memory_bytes - size < self.waiting_bytes and not self._closing.is_set():
            if self._full:
                break
            self._closing.wait(self._limits.tick_seconds)
        if self._full:
            self.shed_disk += 1
            return False
        if self.waiting_bytes + size > self._limits.memory_bytes or self._closing.is_set() or size > MAX_PAYLOAD:
            self.shed_memory += 1
            return False
        self._offered_bytes += size
        self._queue.append((record_id, payload))
        # The thread looks by itself every tick; waking it for each record costs two GIL hand-overs in the path.
        if self._asleep:
            self._wake.set()
        return True

    def close(self, timeout: float = 10.0) -> None:
        """Write what is waiting, sync, and end the thread."""
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def append(self, records: Sequence[tuple[bytes, bytes]]) -> bool:
        """Write these in the caller's own thread, and sync: for who waits for the disk, instead of `start` and `offer`.
        False if the quota forbids it; after an OSError some may have been written. One call at a time.
        """
        if not self._put(records):
            return False
        self._sync()
        return True

    def _run(self) -> None:
        while not self._closing.is_set():
            self._rest()
            self._round(sync=False)
        self._round(sync=True)
        self.shed_disk += len(self._queue)
        self._abandon()
        if self._lock >= 0:
            os.close(self._lock)

    def _rest(self) -> None:
        if self._queue or self._dirty:
            self._closing.wait(self._limits.tick_seconds)
            return
        self._asleep = True
        # A record that was offered before the flag was up would otherwise wait for the timeout.
        if not self._queue:
            self._wake.wait(_IDLE_SECONDS)
        self._asleep = False
        self._wake.clear()

    def _round(self, *, sync: bool) -> None:
        try:
            if self._full:
                self._look()
            while self._queue:
                self._write(self._take())
            if self._dirty and (sync or time.monotonic() - self._synced >= self._limits.sync_seconds):
                self._sync()
        except OSError as error:
            self.errors += 1
            if self.healthy:
                log.error("spool_broken", directory=str(self._directory), error=str(error))
            self.healthy = False
            self._closing.wait(self._limits.retry_seconds)
            return
        if not self.healthy:
            log.info("spool_recovered", directory=str(self._directory), shed=self.shed)
            self.healthy = True

    def _sync(self) -> None:
        try:
            os.fdatasync(self._file)
        except OSError:
            # The kernel forgets what it could not write, and the next sync would say that all is well: what was not
            # safe counts as lost, and the rest goes to another segment.
            lost = self.written - self.safe
            self.written -= lost
            self.shed_disk += lost
            self._abandon()
            raise
        self._synced, self._dirty, self.safe = time.monotonic(), False, self.written

    def _take(self) -> list[tuple[bytes, bytes]]:
        batch: list[tuple[bytes, bytes]] = []
        size = 0
        while self._queue and size < _WRITE_BYTES:
            record = self._queue.popleft()
            batch.append(record)
            size += len(record[1]) + HEADER.size
        return batch

    def _write(self, batch: list[tuple[bytes, bytes]]) -> None:
        try:
            fits = self._put(batch)
        except OSError:
            self._queue.extendleft(reversed(batch))
            raise
        self._taken_bytes += sum(len(payload) + HEADER.size for _, payload in batch)
        if not fits:
            self.shed_disk += len(batch)

    def _put(self, batch: Sequence[tuple[bytes, bytes]]) -> bool:
        """Append `batch`; False if the quota forbids it."""
        size = sum(len(payload) + FRAME_BYTES for _, payload in batch)
        if not self._room(size + HEAD_BYTES):
            return False
        head = b"" if self._size else segment_head(self._mark)
        self._append(head + b"".join([frame(record_id, payload, self._mark) for record_id, payload in batch]))
        self.written += len(batch)
        return True

    def _room(self, size: int) -> bool:
        """Make sure of an open segment that can take `size` bytes; False if the quota forbids it."""
        # Somebody may have removed the directory under us: an unlinked file takes writes and keeps nothing.
        gone = self._file >= 0 and os.fstat(self._file).st_nlink == 0
        if self._file < 0 or gone or self._size >= self._limits.segment_bytes:
            self._roll()
        if self.disk_bytes + size > self._limits.disk_bytes:
            self._look()
        self._full = self.disk_bytes + size > self._limits.disk_bytes
        return not self._full

    def _append(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # Half a record must not stand in the middle of a segment.
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                self._abandon()
            raise
        self._size += len(data)
        self.disk_bytes += len(data)
        self._dirty = True

    def _roll(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._lock < 0:
            lock = os.open(self._directory / "writer.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # A tap that is still draining may hold it; ours are kept in memory until it lets go.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise
            self._lock = lock
        if self._file >= 0:
            self._sync()
            self._abandon()
        self._look()
        numbers = [*segment_numbers(self._directory), read_cursor(self._directory).segment]
        path = segment_path(self._directory, max(numbers) + 1)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._size, self._mark = 0, new_mark()

    def _abandon(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._dirty = -1, False

    def _look(self) -> None:
        """Measure the spool, other taps' part of it too; while the quota is reached at most once a second."""
        now = time.monotonic()
        if self._full and now - self._looked < _IDLE_SECONDS:
            return
        self._looked = now
        self.disk_bytes = spool_bytes(self._directory)
        with contextlib.suppress(OSError):  # of another owner: their own tap fails over it, not this one
            others = (one for one in spools(self._directory.parent) if one != self._directory)
            self.disk_bytes += sum(map(spool_bytes, others))
        self._full = self._full and self.disk_bytes >= self._limits.disk_bytes
