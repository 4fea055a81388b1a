"""The tap's side of the recorder: hands records to the child process that reads and redacts them and writes the spool.

    Call -> offer() -> [batch] -> socket -> recorder process: read, redact -> segments on disk
                 <- how many are settled (written, or shed and counted) <-

Redaction and disk are not the agents' affair: a pattern that takes for ever, a disk that hangs or a child that dies
must not hold up a byte of theirs, so all of it happens in another process. What the child has not settled is kept here,
bounded, and goes to its successor: a record is at most written twice, under one id.
"""

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import cast

import msgspec
import structlog

from actors.messages import Exchange, Feedback
from daemon.tap.recorder_wire import (
    HEAD,
    RECORDERS_ENDED,
    UNREADABLE,
    Copied,
    Order,
    Progress,
    decode_copied,
    decode_progress,
    encode_copied,
)
from daemon.tap.spool import MAX_PAYLOAD

_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "LD_LIBRARY_PATH")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_ATTEMPTS = 2
"""After so many recorders that ended over the same record, its bodies are given up."""
SILENCE_SECONDS = 20.0
"""A recorder that says nothing for so long, with work to do, is killed and started again."""
_SETTLE = 0.2
_TICK = 0.02
"""Seconds between two hand-overs: a kill -9 of the tap loses no more than that."""
Then = Callable[[bool], None]

log = structlog.get_logger(__name__)


class _Waiting(msgspec.Struct, gc=False):
    """A record that is not settled."""

    data: bytes
    id: bytes
    then: Then | None = None
    """Called when it is, and all before it: whether all of them are safe."""
    lost: int = 0
    """Records of this tap that were lost by the time that it came."""
    deaths: int = 0
    """Recorders that ended over it alone."""


class Recorder:
    """Keeps one recorder process alive and feeds it, from the event loop alone. `offer` does no I/O, never blocks and
    never raises.
    """

    def __init__(
        self,
        order: Order,
        *,
        memory_bytes: int,
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`memory_bytes` of records may wait, what comes beyond is shed and counted."""
        self._order, self._memory = order, memory_bytes
        self._rng, self._clock = rng, clock
        self._queue: deque[_Waiting] = deque()
        self._sent = 0
        """Of the queue, those that the child was handed."""
        self._careful = 0
        """Of the queue, those that a dead child left: they go one by one, so that who kills its reader is found."""
        self._unsafe: deque[tuple[int, _Waiting]] = deque()
        """Settled records that somebody wants to know safe, with how many this child had settled by then."""
        self.waiting_bytes = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._link: _Link | None = None
        self._ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._heard = 0.0
        self._pause = _FIRST_PAUSE
        self.progress = Progress()
        """Of the present child."""
        self.written = self.errors = self.redacted = 0
        self.unreadable: Counter[str] = Counter()
        """By dialect: calls kept without the response that the agent had, as it could not be read."""
        self.shed_disk = 0
        self.shed_memory = 0
        """Records refused because memory was full, or because the tap is closing."""
        self.shed_poison = 0
        """Records given up because recorders ended over them, without their bodies too."""
        self.restarts = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def shed(self) -> int:
        return self.shed_memory + self.shed_poison + self.shed_disk

    @property
    def taking(self) -> bool:
        """Whether a record offered now has a fair chance to reach the disk."""
        free = not self._closing and self.waiting_bytes < self._memory
        return free and self.progress.healthy and not self.progress.full

    def offer(self, record: Exchange | Feedback, then: Then | None = None, *, encoding: str = "") -> bool:
        """Take a record; False if it was shed. `then` is called as soon as it is known whether it is on disk for good:
        with True only if no record at all was lost since. With False whoever waits has it sent again, under the same
        id.
        """
        data = encode_copied(Copied(record, encoding))
        if self._closing or len(data) > MAX_PAYLOAD or self.waiting_bytes + len(data) > self._memory:
            self.shed_memory += 1
            return False
        self.waiting_bytes += len(data)
        self._queue.append(_Waiting(data, bytes.fromhex(record.id), then, self._lost() if then else 0))
        if self._timer is None and self._link is not None:
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._hand_over)
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a child alive until `stop`; then let it write what is left, and end."""
        halting = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self._start()
                ended = asyncio.create_task(self._ended.wait())
                while not (halting.done() or ended.done()):
                    await asyncio.wait((halting, ended), timeout=SILENCE_SECONDS / 4, return_when="FIRST_COMPLETED")
                    self._look()
                ended.cancel()
                if stop.is_set():
                    break
                await self._after_death(halting)
            await self._end()
        finally:
            halting.cancel()
            if self._child is not None and self._child.poll() is None:
                self._child.kill()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._ended.clear()
        with theirs:
            theirs.set_inheritable(True)
            environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
            self._child = subprocess.Popen(  # noqa: ASYNC220 - a fork takes a millisecond, at the start of the tap
                [sys.executable, "-m", "daemon.tap.recorder_process", str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # A Ctrl-C or a SIGTERM to the group ends the tap; the recorder ends when the tap has.
                start_new_session=True,
            )
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: _Link(self._on_progress, self._ended.set), sock=ours)
        link.send([_Waiting(json.dumps(msgspec.to_builtins(self._order)).encode(), bytes(16))])
        self._link, self._heard = link, self._clock()
        self.progress = Progress()
        self._hand_over()

    def _hand_over(self) -> None:
        """Send what is waiting, as far as the child takes it."""
        self._timer = None
        link = self._link
        # One that has just closed is not yet known to be gone: its successor is handed what waits.
        if link is None or link.full or link.transport.is_closing():
            return
        upto = min(1, self._careful) or len(self._queue)
        if upto > self._sent:
            if not self._sent:
                self._heard = self._clock()
            link.send(islice(self._queue, self._sent, upto))
            self._sent = upto

    def _on_progress(self, progress: Progress) -> None:
        last, self.progress = self.progress, progress
        self.written += (progress.settled - progress.shed) - (last.settled - last.shed)
        self.shed_disk += progress.shed - last.shed
        self.errors += progress.errors - last.errors
        self.redacted += progress.redacted - last.redacted
        self.unreadable.update({key: n - last.unreadable.get(key, 0) for key, n in progress.unreadable.items()})
        self._heard = self._clock()
        if progress.settled > last.settled:
            self._pause = _FIRST_PAUSE
            for one in self._pop(min(progress.settled - last.settled, self._sent)):
                if one.then is not None:
                    self._unsafe.append((progress.settled, one))
        while self._unsafe and self._unsafe[0][0] <= progress.safe + progress.shed:
            self._tell(self._unsafe.popleft()[1])
        self._hand_over()

    def _pop(self, number: int) -> list[_Waiting]:
        gone = [self._queue.popleft() for _ in range(number)]
        self.waiting_bytes -= sum([len(one.data) for one in gone])
        self._sent, self._careful = max(0, self._sent - number), max(0, self._careful - number)
        return gone

    def _tell(self, one: _Waiting, *, lost: bool = False) -> None:
        if one.then is not None:
            one.then(not lost and self._lost() == one.lost)

    def _lost(self) -> int:
        return self.shed_disk + self.shed_poison

    def _look(self) -> None:
        if self._sent and self._clock() - self._heard > SILENCE_SECONDS and self._child is not None:
            log.error("scribe_silent", seconds=SILENCE_SECONDS, waiting=self.waiting)
            self._child.kill()

    async def _after_death(self, halting: "asyncio.Task[bool]") -> None:
        self._link = None
        status = await self._status()
        self.restarts += 1
        log.error("scribe_ended", status=status, waiting=self.waiting)
        self._forget_child()
        if self._sent == 1:
            self._queue[0].deaths += 1
            if self._queue[0].deaths >= _ATTEMPTS:
                self._give_up()
        self._careful, self._sent = max(self._careful, self._sent), 0
        # No pause after the first death: agents' records wait. One that cannot live at all is not started in a loop.
        await asyncio.wait((halting,), timeout=self._pause * self._rng.uniform(0.5, 1.5))
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    def _give_up(self) -> None:
        """Keep of the first record what is left without its bodies; nothing, if recorders ended over that."""
        (one,) = self._pop(1)
        log.error("record_given_up", bytes=len(one.data))
        self._tell(one, lost=True)
        bare = _without_bodies(one.data)
        if bare == one.data:
            self.shed_poison += 1
        else:
            self._queue.appendleft(_Waiting(bare, one.id))
            self.waiting_bytes += len(bare)
            self._sent = 1

    def _forget_child(self) -> None:
        # It ended before it could say so; what it wrote is read all the same, and what is sent again is recognised.
        while self._unsafe:
            self._tell(self._unsafe.popleft()[1], lost=True)
        self.progress = Progress(healthy=False, disk_bytes=self.progress.disk_bytes)

    async def _status(self) -> int | None:
        """The child's exit status; it has closed its end, so it is about to be there."""
        child = self._child
        if child is None:
            return None
        for _ in range(20):
            if child.poll() is not None:
                return child.returncode
            await asyncio.sleep(0.05)
        child.kill()
        return child.wait(5.0)

    async def _end(self) -> None:
        """Hand over all that is left, and let the child write it."""
        end = self._clock() + SILENCE_SECONDS
        while self._clock() < end and not self._ended.is_set() and self._sent < len(self._queue):
            self._hand_over()
            await asyncio.sleep(_TICK)
        self._closing = True
        if self._link is not None and not self._ended.is_set():
            self._link.transport.write_eof()
            try:
                await asyncio.wait_for(self._ended.wait(), max(_SETTLE, end - self._clock()))
            except TimeoutError:
                log.error("scribe_silent", seconds=SILENCE_SECONDS, waiting=self.waiting)
            self._link.transport.abort()
        await self._status()
        self._forget_child()
        self.shed_memory += self.waiting
        for one in self._pop(self.waiting):
            self._tell(one, lost=True)


class _Link(asyncio.Protocol):
    """The socket to the child."""

    def __init__(self, on_progress: Callable[[Progress], None], on_end: Callable[[], None]) -> None:
        self._on_progress, self._on_end = on_progress, on_end
        self.transport: asyncio.Transport
        self.full = False
        self._rest = b""

    def send(self, records: Iterable[_Waiting]) -> None:
        self.transport.write(
            b"".join([part for one in records for part in (HEAD.pack(len(one.data), one.id), one.data)])
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_progress(decode_progress(line))

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False


def _without_bodies(data: bytes) -> bytes:
    record = decode_copied(data).record
    if isinstance(record, Feedback):
        return encode_copied(Copied(msgspec.structs.replace(record, text=UNREADABLE)))
    head = msgspec.structs.replace(record, request=b"", response=b"", complete=False, error=RECORDERS_ENDED)
    return encode_copied(Copied(head))
