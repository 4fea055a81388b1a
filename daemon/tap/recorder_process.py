"""The recorder: makes finished records of what the tap copied, without their secrets, and writes them to the spool. A
process of its own, see `tap.recorder`.

It tells the tap what is settled, is handed no more before that, and ends when the tap's end of the socket does, after
writing all that came. While it waits for the disk it says at least that it is alive: whoever is silent for long hangs
on a record.
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
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from actors.messages import Exchange, Feedback, encode
from actors.messages.dialects import dialect_at
from adapters.intake.tap import read_call
from daemon.logs import configure
from daemon.tap.recorder_wire import LENGTH, RECORDERS_ENDED, UNREADABLE, Copied, Order, Progress, decode_copied
from daemon.tap.spool import Record, SpoolWriter

if TYPE_CHECKING:
    from adapters.redaction import Redactor

log = structlog.get_logger(__name__)

_READ = 1 << 20
_TICK = 0.02
"""What comes in so many seconds is written at once: fewer calls of the system, fewer changes of thread."""
_SYNC_SECONDS = 0.1
"""At most this often to stable storage: a power failure loses no more than that."""
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
_MAX_NAMES = 1000
"""Of a tenant's agents, and of tenants whose agents are told apart: whoever names an agent after each call would fill
every list of them."""


class SpoolThread:
    """Writes records in a thread of its own, and settles them in order. A disk that fails is tried again for as long as
    the process lives; what the quota forbids is shed.
    """

    def __init__(self, spool: SpoolWriter, counts: Counter[str]) -> None:
        """`counts` gets `written`, `shed_disk` and `errors`."""
        self.spool, self.counts, self.healthy = spool, counts, True
        self._queue: deque[Record] = deque()
        self._unwritten: list[Record] = []
        self._unsafe: list[Record] = []
        """Written, and not settled: no sync has come after them."""
        self._shed = 0
        """Shed, and not settled: those before them are not."""
        self._synced = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._thread.start()

    @property
    def works(self) -> bool:
        """No bug has ended it."""
        return self._closing.is_set() or self._thread.is_alive()

    def put(self, record: Record) -> None:
        self._queue.append(record)

    def close(self, timeout: float = _LAST_SECONDS) -> None:
        """Write what is waiting, sync, and end the thread."""
        self._closing.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing.wait(_TICK):
            self._round()
        self._synced = 0.0
        self._round()
        self._shed += len(self._unwritten) + len(self._unsafe)
        self._unsafe = []
        self._settle()
        self.spool.close()

    def _round(self) -> None:
        while self._queue:
            self._unwritten.append(self._queue.popleft())
        try:
            self.spool.tend()
            if self._unwritten:
                if self.spool.append(self._unwritten):
                    self._unsafe += self._unwritten
                else:
                    self._shed += len(self._unwritten)
                self._unwritten = []
            if (self._unsafe or self._shed) and time.monotonic() - self._synced >= _SYNC_SECONDS:
                self.spool.sync()
                self._settle()
        except OSError as error:
            if not self.spool.dirty:
                # The segment was left, without what was not safe in it.
                self._unwritten, self._unsafe = self._unsafe + self._unwritten, []
            self.counts["errors"] += 1
            if self.healthy:
                log.error("spool_broken", directory=str(self.spool.directory), error=str(error))
            self.healthy = False
            self._closing.wait(_RETRY_SECONDS)
            return
        if not self.healthy:
            log.info("spool_recovered", directory=str(self.spool.directory))
            self.healthy = True

    def _settle(self) -> None:
        self._synced = time.monotonic()
        self.counts["written"] += len(self._unsafe)
        self.counts["shed_disk"] += self._shed
        self._unsafe, self._shed = [], 0


class RecorderProcess:
    """Reads, redacts and writes until its link ends."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._readable = select.poll()
        self._readable.register(link, select.POLLIN)
        self._redactor: Redactor | None = None
        self._disk: SpoolThread | None = None
        self.counts: Counter[str] = Counter()
        """See `Progress`; each number is written by one thread."""
        self._agents: defaultdict[str, set[str]] = defaultdict(set)
        """Names by tenant; under "" those of tenants beyond the first."""
        self._said, self._told = Progress(), 0.0

    def run(self) -> None:
        payloads = self._payloads()
        told = next(payloads, None)
        if told is None:
            return
        order = msgspec.json.decode(told, type=Order)
        self._redactor = _redactor(order)
        disk = self._disk = SpoolThread(SpoolWriter(Path(order.directory), order.disk_bytes), self.counts)
        for payload in payloads:
            disk.put(self._finished(payload))
            self._tell()
        disk.close()
        self._told = 0.0
        self._tell()

    def _payloads(self) -> Iterator[bytes]:
        """What the tap sends. One that was cut off is none: its writer died over it."""
        buffer = bytearray()
        while data := self._received():
            buffer += data
            at = 0
            while len(buffer) - at >= LENGTH.size:
                begin = at + LENGTH.size
                end = begin + LENGTH.unpack_from(buffer, at)[0]
                if len(buffer) < end:
                    break
                yield bytes(memoryview(buffer)[begin:end])
                at = end
            del buffer[:at]

    def _received(self) -> bytes:
        while not self._readable.poll(1000 * _TICK):
            self._tell()
        try:
            return self._link.recv(_READ)
        except ConnectionError:
            return b""

    def _finished(self, payload: bytes) -> Record:
        """The record for the spool. Of one that takes too long, or that we fail over, all but its words."""
        copied = decode_copied(payload)
        copy = copied.record
        why = RECORDERS_ENDED if isinstance(copy, Exchange) and copy.error == RECORDERS_ENDED else ""
        record = copy
        try:
            # Of CPU time, so that a busy machine costs nobody a record; the regex engine looks for signals too.
            signal.setitimer(signal.ITIMER_VIRTUAL, _COSTS[0] + _COSTS[1] * len(payload) / 1e6)
            try:
                record = self._read(copied)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        except _TooCostly:
            log.warning("redaction_too_costly", bytes=len(payload))
            why = "its bodies took too long to search"
        except Exception as error:
            # Its message may quote what is not redacted yet.
            where = traceback.format_tb(error.__traceback__)[-1]
            log.error("record_unreadable", id=copy.id, error=type(error).__name__, where=where)
            why = f"a bug in reading it: {type(error).__name__}"
        if why:
            record = self._without_words(copy, why)
        if isinstance(record, Exchange) and isinstance(copy, Exchange):
            self.counts["redacted"] += bool(record.redacted)
            if why or (record.error and copy.complete and copy.status < 400):
                self.counts[f"unreadable_{dialect_at(copy.endpoint) or 'other'}"] += 1
        else:
            self.counts["redacted"] += record is not copy
        return Record(bytes.fromhex(copy.id), encode(record))

    def _read(self, copied: Copied) -> Exchange | Feedback:
        record = copied.record
        if isinstance(record, Exchange):
            return read_call(self._named(record), self._redactor, encoding=copied.encoding)
        return record if self._redactor is None else self._redactor.feedback(record)

    def _without_words(self, copy: Exchange | Feedback, why: str) -> Exchange | Feedback:
        if isinstance(copy, Feedback):
            report = self._read(Copied(msgspec.structs.replace(copy, text="")))
            return msgspec.structs.replace(report, text=UNREADABLE)
        head = self._read(Copied(msgspec.structs.replace(copy, request=b"", response=b"")))
        return msgspec.structs.replace(
            head, complete=False, error=why, redacted=("prompt", "response"), finds={"unreadable": 1}
        )

    def _named(self, call: Exchange) -> Exchange:
        """Without the name of its agent, if its tenant has too many already."""
        known = call.tenant in self._agents or len(self._agents) < _MAX_NAMES
        agent, names = call.hints.agent, self._agents[call.tenant if known else ""]
        if agent and agent not in names:
            if len(names) >= _MAX_NAMES:
                self.counts["unnamed"] += 1
                return msgspec.structs.replace(call, hints=msgspec.structs.replace(call.hints, agent=""))
            names.add(agent)
        return call

    def _tell(self) -> None:
        """Tell what is settled; while that is nothing new, tell at least that somebody is here. Where a bug has ended
        the other thread, say nothing: the tap starts a successor.
        """
        now, disk = time.monotonic(), self._disk
        if disk is None or not disk.works or now - self._told < _TICK:
            return
        # Copied at once: the other thread counts meanwhile.
        progress = Progress(dict(self.counts), disk.spool.disk_bytes, disk.healthy, disk.spool.full)
        if progress != self._said or now - self._told > _SIGN_OF_LIFE:
            self._said, self._told = progress, now
            with contextlib.suppress(OSError):  # the tap is gone; what it has sent is written all the same
                self._link.sendall(msgspec.json.encode(progress) + b"\n")


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
