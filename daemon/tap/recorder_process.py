"""The recorder: makes finished records of what the tap copied, without their secrets, and writes them to the spool. A
process of its own, see `tap.recorder`.

It reads no faster than the disk writes, tells the tap what is settled, and ends when the tap's end of the socket does,
after writing all that came.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from actors.messages import Exchange, Feedback, encode
from actors.messages.raw import RawExchange, decode_raw
from adapters.intake.tap import exchange_from_raw
from daemon.logs import configure
from daemon.tap.recorder_wire import HEAD, Order, Progress
from daemon.tap.spool import SpoolLimits, SpoolWriter

if TYPE_CHECKING:
    from adapters.redaction import Redactor

log = structlog.get_logger(__name__)

_READ = 1 << 20
_SIGN_OF_LIFE = 1.0
_COSTS = (0.5, 0.5)
"""CPU seconds that a record may take, and more for each megabyte of it: some ten times what traffic takes.
What takes longer was made for it, or meets a pattern that backtracks without end; its bodies are left out."""
_NICENESS = 5
"""Agents' traffic goes first where cores are few."""


class _Inlet:
    """Frames from the socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._buffer = b""
        self._at = 0

    def frame(self) -> tuple[bytes, bytes] | None:
        """The next (id, payload); None at the end. A frame that was cut off is none: its writer died over it."""
        if not self._have(HEAD.size):
            return None
        length, record_id = HEAD.unpack_from(self._buffer, self._at)
        if not self._have(HEAD.size + length):
            return None
        start = self._at + HEAD.size
        self._at = start + length
        return record_id, self._buffer[start : self._at]

    def _have(self, size: int) -> bool:
        if len(self._buffer) - self._at >= size:
            return True
        parts, had = [self._buffer[self._at :]], len(self._buffer) - self._at
        while had < size:
            try:
                data = self._link.recv(max(_READ, size - had))
            except ConnectionError:
                return False
            if not data:
                return False
            parts.append(data)
            had += len(data)
        self._buffer, self._at = b"".join(parts), 0
        return True


class RecorderProcess:
    """Reads, redacts and writes until its link ends."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._inlet = link, _Inlet(link)
        self._redactor: Redactor | None = None
        self._redacted = 0
        self._unreadable = 0
        self._began = 0.0
        """When the reading of a record began, 0 between two."""

    def run(self) -> None:
        told = self._inlet.frame()
        if told is None:
            return
        order = msgspec.json.decode(told[1], type=Order)
        self._redactor = _redactor(order)
        limits = SpoolLimits(memory_bytes=order.memory_bytes, disk_bytes=order.disk_bytes)
        writer = SpoolWriter(Path(order.directory), limits)
        writer.start()
        done = threading.Event()
        teller = threading.Thread(target=self._tell_often, args=(writer, limits.tick_seconds, done), daemon=True)
        teller.start()
        while (frame := self._inlet.frame()) is not None:
            record_id, payload = frame
            writer.offer(record_id, self._finished(payload), patient=True)
        writer.close()
        done.set()
        teller.join()
        self._tell(self._progress(writer))

    def _finished(self, payload: bytes) -> bytes:
        """The record for the spool. Of one that takes too long, or that we fail over, all but its bodies."""
        raw = decode_raw(payload)
        self._began = time.monotonic()
        try:
            # Of CPU time, so that a busy machine costs nobody a record; the regex engine looks for signals too.
            signal.setitimer(signal.ITIMER_VIRTUAL, _COSTS[0] + _COSTS[1] * len(payload) / 1e6)
            try:
                record = self._read(raw)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        except _TooCostly:
            log.warning("redaction_too_costly", bytes=len(payload))
            record = self._left_out(raw, "its bodies took too long to search")
        except Exception as error:
            # Its message may quote what is not redacted yet.
            where = traceback.format_tb(error.__traceback__)[-1]
            log.error("record_unreadable", id=raw.id, error=type(error).__name__, where=where)
            record = self._left_out(raw, f"a bug in reading it: {type(error).__name__}")
        self._began = 0.0
        if isinstance(record, Exchange):
            self._redacted += bool(record.redacted)
            self._unreadable += bool(record.error)
        else:
            self._redacted += record is not raw
        return encode(record)

    def _read(self, raw: RawExchange | Feedback) -> Exchange | Feedback:
        if isinstance(raw, RawExchange):
            return exchange_from_raw(raw, self._redactor)
        return raw if self._redactor is None else self._redactor.feedback(raw)

    def _left_out(self, raw: RawExchange | Feedback, why: str) -> Exchange | Feedback:
        if isinstance(raw, Feedback):
            return msgspec.structs.replace(
                self._read(msgspec.structs.replace(raw, text="")), text="[REDACTED:unreadable]"
            )
        bare = exchange_from_raw(msgspec.structs.replace(raw, request=b"", response=b""), self._redactor)
        return msgspec.structs.replace(
            bare, complete=False, error=why, redacted=("prompt", "response"), finds={"unreadable": 1}
        )

    def _tell_often(self, writer: SpoolWriter, seconds: float, done: threading.Event) -> None:
        """Tell what is settled; while the disk does not take anything, tell at least that it is waited for."""
        last, told = Progress(), 0.0
        while not done.wait(seconds):
            progress, now = self._progress(writer), time.monotonic()
            waiting = not self._began and now - told > _SIGN_OF_LIFE
            if progress != last or waiting:
                if not self._tell(progress):
                    return
                last, told = progress, now

    def _progress(self, writer: SpoolWriter) -> Progress:
        return Progress(
            written=writer.written,
            safe=writer.safe,
            shed=writer.shed,
            redacted=self._redacted,
            unreadable=self._unreadable,
            errors=writer.errors,
            disk_bytes=writer.disk_bytes,
            healthy=writer.healthy,
            full=writer.full,
        )

    def _tell(self, progress: Progress) -> bool:
        try:
            self._link.sendall(msgspec.json.encode(progress) + b"\n")
        except OSError:
            return False
        return True


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
