"""The tap's side of the recorder: hands records to the child process that reads and redacts them and writes the spool.

    Call -> offer() -> [batch] -> socket -> recorder process: read, redact -> segments on disk
                 <- how many are settled (safe on the disk, or shed and counted) <-

Redaction and disk are not the agents' affair: a pattern that takes for ever, a disk that hangs or a child that dies
must not hold up a byte of theirs, so all of it happens in another process. What the child has not settled is kept here,
bounded, and goes to its successor: a record may be written twice, under one id.
"""

import asyncio
import os
import random
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable
from itertools import islice

import msgspec
import structlog

from actors.messages import Exchange, Feedback
from daemon.tap.recorder_wire import (
    LENGTH,
    RECORDERS_ENDED,
    UNREADABLE,
    Copied,
    Order,
    Progress,
    decode_copied,
    decode_progress,
    encode_copied,
)

_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "LD_LIBRARY_PATH")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_ATTEMPTS = 2
"""After so many recorders that ended over the same record, its bodies are given up."""
SILENCE_SECONDS = 20.0
"""A recorder that says nothing for so long is killed and started again: it speaks each second, also while it waits."""
_TICK = 0.02
"""Seconds between two hand-overs: a kill -9 of the tap loses no more than that."""
_AHEAD_BYTES = 16 << 20
"""The child is given no more once it has so many bytes that are not settled."""
Then = Callable[[bool], object]

log = structlog.get_logger(__name__)


class _Waiting(msgspec.Struct, gc=False):
    """A record that is not settled."""

    data: bytes
    then: Then | None = None
    """Called when it is, and all before it: whether all of them are safe."""
    lost: int = 0
    """Records of this tap that were lost by the time that it came."""


class Recorder:
    """Keeps one recorder process alive and feeds it, from the event loop alone. `offer` does no I/O, never blocks and
    never raises.
    """

    def __init__(self, order: Order, *, memory_bytes: int, rng: random.Random) -> None:
        """`memory_bytes` of records may wait, what comes beyond is shed and counted."""
        self._order, self._memory, self._rng = order, memory_bytes, rng
        self._queue: deque[_Waiting] = deque()
        self._sent = self._sent_bytes = 0
        """Of the queue, those that the child was handed."""
        self._careful = 0
        """Of the queue, those that a dead child left: they go one by one, so that who kills its reader is found."""
        self._deaths = 0
        """Children that ended over the first record alone."""
        self.waiting_bytes = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._link: asyncio.StreamWriter | None = None
        self._silence: asyncio.Timeout
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._pause = _FIRST_PAUSE
        self.progress = Progress()
        """Of the present child."""
        self.counts = Counter({"shed_memory": 0, "shed_disk": 0, "shed_poison": 0})
        """What all children told, and our own. `shed_memory`: records refused because memory was full, or because the
        tap is closing. `shed_poison`: given up because recorders ended over them, without their bodies too. `restarts`.
        """

    @property
    def waiting(self) -> int:
        return len(self._queue)

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
        if self._closing or self.waiting_bytes + len(data) > self._memory:
            self.counts["shed_memory"] += 1
            return False
        self.waiting_bytes += len(data)
        self._queue.append(_Waiting(data, then, self._lost()))
        if self._timer is None and self._link is not None:
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._hand_over)
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a child alive until `stop`; then let it write what is left, and end."""
        ending = asyncio.create_task(self._end(stop))
        try:
            while not self._closing:
                try:
                    status = await self._live()
                except Exception as error:
                    # No process or descriptor is left to be had, or a bug of ours: the agents' calls go on.
                    status = repr(error)
                if not self._closing:
                    self._after_death(status)
                    # Short after the first, as records wait, and longer where none can live.
                    await asyncio.wait((ending,), timeout=self._pause * self._rng.uniform(0.5, 1.5))
                    self._pause = min(_LONGEST_PAUSE, 2 * self._pause)
        finally:
            ending.cancel()
            if self._child is not None and self._child.poll() is None:
                self._child.kill()
        self.counts["shed_memory"] += self.waiting
        for one in self._pop(self.waiting):
            _tell(one, safe=False)

    async def _live(self) -> int | None:
        """Start a child and hear it to its end; returns its exit status, None if it hangs on something."""
        child, ours = self._spawn()
        self._child = child
        reader, link = await asyncio.open_unix_connection(sock=ours)
        order = msgspec.json.encode(self._order)
        link.write(LENGTH.pack(len(order)) + order)
        self._link, self.progress = link, Progress()
        self._hand_over()
        if self._closing:
            link.write_eof()
        try:
            while True:
                async with asyncio.timeout(SILENCE_SECONDS) as self._silence:
                    line = await reader.readline()
                if not line.endswith(b"\n"):
                    break
                self._on_progress(decode_progress(line))
        except TimeoutError:
            log.error("scribe_silent", seconds=SILENCE_SECONDS, waiting=self.waiting)
            child.kill()
        except ConnectionError:
            pass  # it ended with something unread
        finally:
            self._link = None
            link.transport.abort()
        # It is about to be gone. One that hangs in the kernel, on a disk for example, is not waited for.
        for _ in range(20):
            if child.poll() is not None:
                break
            await asyncio.sleep(0.05)
        else:
            child.kill()
        return child.returncode

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
            try:
                child = subprocess.Popen(
                    [sys.executable, "-m", "daemon.tap.recorder_process", str(theirs.fileno())],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    # A Ctrl-C or a SIGTERM to the group ends the tap; the recorder ends when the tap has.
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return child, ours

    def _hand_over(self) -> None:
        """Send what is waiting, as far as the child takes it."""
        self._timer = None
        link = self._link
        # One that has just closed is not yet known to be gone: its successor is handed what waits.
        if link is None or link.transport.is_closing():
            return
        for one in islice(self._queue, self._sent, min(1, self._careful) or None):
            if self._sent_bytes >= _AHEAD_BYTES:
                break
            link.write(LENGTH.pack(len(one.data)) + one.data)
            self._sent, self._sent_bytes = self._sent + 1, self._sent_bytes + len(one.data)

    def _on_progress(self, progress: Progress) -> None:
        fresh = Counter(progress.counts)
        fresh.subtract(self.progress.counts)
        self.counts.update(fresh)
        self.progress = progress
        if settled := fresh["written"] + fresh["shed_disk"]:
            self._pause = _FIRST_PAUSE
            for one in self._pop(min(settled, self._sent)):
                _tell(one, safe=self._lost() == one.lost)
        self._hand_over()

    def _pop(self, number: int) -> list[_Waiting]:
        gone = [self._queue.popleft() for _ in range(number)]
        size = sum([len(one.data) for one in gone])
        self.waiting_bytes -= size
        self._sent, self._sent_bytes = max(0, self._sent - number), max(0, self._sent_bytes - size)
        self._careful, self._deaths = max(0, self._careful - number), 0
        return gone

    def _lost(self) -> int:
        return self.counts["shed_disk"] + self.counts["shed_poison"]

    def _after_death(self, status: int | str | None) -> None:
        self.counts["restarts"] += 1
        log.error("scribe_ended", status=status, waiting=self.waiting)
        # The first of several is soon replaced, and reports wait for its successor; later ones are refused.
        self.progress = Progress(healthy=self._pause == _FIRST_PAUSE, disk_bytes=self.progress.disk_bytes)
        self._deaths += self._sent == 1
        self._careful, self._sent, self._sent_bytes = max(self._careful, self._sent), 0, 0
        if self._deaths == _ATTEMPTS:
            self._give_up()

    def _give_up(self) -> None:
        """Keep of the first record what is left without its bodies; nothing, if recorders ended over that."""
        (one,) = self._pop(1)
        log.error("record_given_up", bytes=len(one.data))
        _tell(one, safe=False)
        bare = _without_bodies(one.data)
        if bare == one.data:
            self.counts["shed_poison"] += 1
        else:
            self._queue.appendleft(_Waiting(bare))
            self.waiting_bytes += len(bare)
            self._careful += 1

    async def _end(self, stop: asyncio.Event) -> None:
        """When it is time, hand over all that is left, and let the child write it."""
        await stop.wait()
        clock = asyncio.get_running_loop().time
        end = clock() + SILENCE_SECONDS
        while self._sent < len(self._queue) and clock() < end:
            self._hand_over()
            await asyncio.sleep(_TICK)
        self._closing = True
        link = self._link
        if link is not None and not link.transport.is_closing():
            link.write_eof()
            await asyncio.sleep(end - clock())
            log.error("scribe_silent", seconds=SILENCE_SECONDS, waiting=self.waiting)
            link.transport.abort()


def _tell(one: _Waiting, *, safe: bool) -> None:
    if one.then is not None:
        one.then(safe)


def _without_bodies(data: bytes) -> bytes:
    record = decode_copied(data).record
    if isinstance(record, Feedback):
        return encode_copied(Copied(msgspec.structs.replace(record, text=UNREADABLE)))
    head = msgspec.structs.replace(record, request=b"", response=b"", complete=False, error=RECORDERS_ENDED)
    return encode_copied(Copied(head))
