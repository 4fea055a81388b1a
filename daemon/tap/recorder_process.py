"""The recorder: makes finished records of what the tap copied, without their secrets, and writes them to the spool. A
process of its own, see `tap.recorder`.

It reads no faster than the disk writes, tells the tap what is settled, and ends when the tap's end of the socket does,
after writing all that came. While it waits for the disk it says at least that it is alive: whoever is silent for long
hangs on a record.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from actors.messages import Exchange, Feedback, encode
from actors.messages.dialects import dialect_at
from adapters.intake.tap import read_call
from daemon.logs import configure
from daemon.tap.recorder_wire import HEAD, RECORDERS_ENDED, UNREADABLE, Copied, Order, Progress, decode_copied
from daemon.tap.spool import Record, SpoolWriter

if TYPE_CHECKING:
    from adapters.redaction import Redactor

log = structlog.get_logger(__name__)

_READ = 1 << 20
_WRITE_BYTES = 4 << 20
_TICK = 0.02
_SYNC_SECONDS = 0.1
"""At most this often to stable storage: a power failure loses no more than that."""
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 1.0
"""After a failed write."""
_SIGN_OF_LIFE = 1.0
_LAST_SECONDS = 10.0
"""For what is left to write at the end."""
_COSTS = (0.5, 0.5)
"""CPU seconds that a record may take, and more for each megabyte of it: some ten times what traffic takes.
What takes longer was made for it, or meets a pattern that backtracks without end; its bodies are left out."""
_NICENESS = 5
"""Agents' traffic goes first where cores are few."""


class SpoolThread:
    """Writes records in a thread of its own. A disk that fails is tried again for as long as the process lives; what
    the quota forbids is shed and counted.
    """

    def __init__(self, spool: SpoolWriter) -> None:
        self.spool, self.progress = spool, Progress()
        self._queue: deque[Record] = deque()
        # Each of the two is written by one thread only, so their difference needs no lock.
        self._bytes_in = self._bytes_out = 0
        self._synced = 0.0
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        return self._bytes_in - self._bytes_out

    def put(self, record: Record) -> None:
        """Take a record; the thread is woken by `wake`, once for many."""
        self._bytes_in += len(record.payload)
        self._queue.append(record)

    def wake(self) -> None:
        self._wake.set()

    def close(self, timeout: float = _LAST_SECONDS) -> None:
        """Write what is waiting, sync, and end the thread."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._wake.wait(_SYNC_SECONDS if self.spool.dirty else _IDLE_SECONDS):
                # What comes in the meantime is written with it: fewer calls of the system, fewer changes of thread.
                self._closing.wait(_TICK)
            self._wake.clear()
            self._round()
        self._synced = 0.0
        self._round()
        self._settle(len(self._queue), kept=False)
        self.spool.close()

    def _round(self) -> None:
        told = self.progress
        try:
            self.spool.tend()
            while self._queue:
                self._write()
            if self.spool.dirty and time.monotonic() - self._synced >= _SYNC_SECONDS:
                self.spool.sync()
                self._synced, told.safe = time.monotonic(), told.settled - told.shed
        except OSError as error:
            if not self.spool.dirty:
                # The segment was left, with what was not safe in it.
                told.shed = told.settled - told.safe
            told.errors += 1
            if told.healthy:
                log.error("spool_broken", directory=str(self.spool.directory), error=str(error))
            told.healthy = False
            self._closing.wait(_RETRY_SECONDS)
            return
        if not told.healthy:
            log.info("spool_recovered", directory=str(self.spool.directory), shed=told.shed)
            told.healthy = True

    def _write(self) -> None:
        batch: list[Record] = []
        size = 0
        while self._queue and size < _WRITE_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1].payload)
        try:
            kept = self.spool.append(batch)
        except OSError:
            self._queue.extendleft(reversed(batch))
            raise
        self._bytes_out += size
        self._settle(len(batch), kept=kept)

    def _settle(self, number: int, *, kept: bool) -> None:
        # In this order: whoever reads in between must not take for written what is shed.
        self.progress.shed += 0 if kept else number
        self.progress.settled += number


class RecorderProcess:
    """Reads, redacts and writes until its link ends."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._readable = select.poll()
        self._readable.register(link, select.POLLIN)
        self._redactor: Redactor | None = None
        self._disk: SpoolThread | None = None
        self._redacted = 0
        self._unreadable: Counter[str] = Counter()
        self._said, self._told = b"", 0.0

    def run(self) -> None:
        frames = self._frames()
        told = next(frames, None)
        if told is None:
            return
        order = msgspec.json.decode(told.payload, type=Order)
        self._redactor = _redactor(order)
        disk = self._disk = SpoolThread(SpoolWriter(Path(order.directory), order.disk_bytes))
        for record_id, payload in frames:
            disk.put(Record(record_id, self._finished(payload)))
            self._tell(disk)
            while disk.waiting_bytes > order.memory_bytes:
                disk.wake()
                time.sleep(_TICK)
                self._tell(disk)
        disk.close()
        self._told = 0.0
        self._tell(disk)

    def _frames(self) -> Iterator[Record]:
        """What the tap sends. A frame that was cut off is none: its writer died over it."""
        buffer = bytearray()
        while data := self._received():
            buffer += data
            at = 0
            while len(buffer) - at >= HEAD.size:
                length, record_id = HEAD.unpack_from(buffer, at)
                end = at + HEAD.size + length
                if len(buffer) < end:
                    break
                yield Record(record_id, bytes(memoryview(buffer)[at + HEAD.size : end]))
                at = end
            del buffer[:at]

    def _received(self) -> bytes:
        if self._disk is not None:
            self._disk.wake()
            while not self._readable.poll(1000 * _TICK):
                self._tell(self._disk)
        try:
            return self._link.recv(_READ)
        except ConnectionError:
            return b""

    def _finished(self, payload: bytes) -> bytes:
        """The record for the spool. Of one that takes too long, or that we fail over, all but its bodies."""
        copied = decode_copied(payload)
        copy = copied.record
        record, why = self._tried(copied, len(payload))
        if record is None:
            record = self._left_out(copy, why)
        if isinstance(record, Exchange) and isinstance(copy, Exchange):
            self._redacted += bool(record.redacted)
            if why or (record.error and copy.complete and copy.status < 400):
                self._unreadable[dialect_at(copy.endpoint) or "other"] += 1
        else:
            self._redacted += record is not copy
        return encode(record)

    def _tried(self, copied: Copied, size: int) -> tuple[Exchange | Feedback | None, str]:
        """The record, or None and why not."""
        record = copied.record
        if isinstance(record, Exchange) and record.error == RECORDERS_ENDED:
            return None, "recorders ended over it"
        try:
            # Of CPU time, so that a busy machine costs nobody a record; the regex engine looks for signals too.
            signal.setitimer(signal.ITIMER_VIRTUAL, _COSTS[0] + _COSTS[1] * size / 1e6)
            try:
                return self._read(record, copied.encoding), ""
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        except _TooCostly:
            log.warning("redaction_too_costly", bytes=size)
            return None, "its bodies took too long to search"
        except Exception as error:
            # Its message may quote what is not redacted yet.
            where = traceback.format_tb(error.__traceback__)[-1]
            log.error("record_unreadable", id=record.id, error=type(error).__name__, where=where)
            return None, f"a bug in reading it: {type(error).__name__}"

    def _read(self, copy: Exchange | Feedback, encoding: str = "") -> Exchange | Feedback:
        if isinstance(copy, Exchange):
            return read_call(copy, self._redactor, encoding=encoding)
        return copy if self._redactor is None else self._redactor.feedback(copy)

    def _left_out(self, copy: Exchange | Feedback, why: str) -> Exchange | Feedback:
        if isinstance(copy, Feedback):
            return msgspec.structs.replace(self._read(msgspec.structs.replace(copy, text="")), text=UNREADABLE)
        bare = self._read(msgspec.structs.replace(copy, request=b"", response=b""))
        return msgspec.structs.replace(
            bare, complete=False, error=why, redacted=("prompt", "response"), finds={"unreadable": 1}
        )

    def _tell(self, disk: SpoolThread) -> None:
        """Tell what is settled; while that is nothing new, tell at least that somebody is here."""
        now = time.monotonic()
        if now - self._told < _TICK:
            return
        progress, spool = disk.progress, disk.spool
        progress.redacted, progress.unreadable = self._redacted, self._unreadable
        progress.disk_bytes, progress.full = spool.disk_bytes, spool.full
        said = msgspec.json.encode(progress) + b"\n"
        if said != self._said or now - self._told > _SIGN_OF_LIFE:
            self._said, self._told = said, now
            with contextlib.suppress(OSError):  # the tap is gone; what it has sent is written all the same
                self._link.sendall(said)


class _TooCostly(BaseException):
    """A record took more CPU time than it may. No `except Exception` on the way is to swallow it."""


def _too_costly(number: int, frame: object) -> None:
    raise _TooCostly


def _redactor(order: Order) -> "Redactor | None":
    """The redactor as ordered; its detectors are not even loaded if there is to be none."""
    if not any((order.redaction.get("kinds", True), order.redaction.get("patterns"), order.redaction.get("strict"))):
        return None
    from adapters.redaction import RedactionSettings, Redactor

    return Redactor(msgspec.convert(order.redaction, RedactionSettings))


def main() -> None:
    """`python -m daemon.tap.recorder_process FD`, started by the tap."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGVTALRM, _too_costly)
    os.umask(0o077)
    with contextlib.suppress(OSError):  # a hardened unit may forbid it; the spool matters more than who goes first
        os.nice(_NICENESS)
    configure()
    with socket.socket(fileno=int(sys.argv[1])) as link:
        RecorderProcess(link).run()


if __name__ == "__main__":
    main()
