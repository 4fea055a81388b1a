"""The converter: makes batches of spooled records in a child process, one batch ahead.

    Shipper -> Load -> converter process: read segments, merge streams, encode
            <- Batch <-

In the daemon it would hold the interpreter that the assembler and the broker's connection need. The child keeps nothing
that is not on disk: when it dies, the batch is asked for again. A record that it keeps dying over is a dead letter.
"""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread
import msgspec
import structlog

from actors.system.errors import DependencyUnavailable
from daemon.ingest.conversion import Batch, Load, dead
from daemon.tap.segments import Position
from daemon.tap.spool_reader import SpoolReader

HEAD = struct.Struct("<I")
"""Before each frame, its length. Frames are msgpack: `Load` down, `Batch` or an `OSError`'s text up."""
COMMAND = (sys.executable, "-m", "daemon.ingest.converter_process")
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "LD_LIBRARY_PATH")
_ATTEMPTS = 2
"""After so many processes that ended over the same single record, it is given up."""

log = structlog.get_logger(__name__)
_encode = msgspec.msgpack.Encoder().encode


class ConverterEnded(DependencyUnavailable):
    """The child died or hangs; another one can be asked. Names the process and what was seen of its end."""


class Failure(msgspec.Struct, frozen=True, tag=True):
    """The disk failed."""

    text: str


class Made(msgspec.Struct, frozen=True, tag=True):
    """A batch."""

    batch: Batch


_answers: msgspec.msgpack.Decoder[Made | Failure] = msgspec.msgpack.Decoder(Made | Failure)


class Converter:
    """Gives batches from a child process, which is started when it is needed."""

    def __init__(self, *, silence_seconds: float = 60.0, command: Sequence[str] = COMMAND) -> None:
        """`silence_seconds`: a child that does not answer for so long is killed; below the shipper's stall time."""
        self._silence, self._command = silence_seconds, tuple(command)
        self._child: _Child | None = None
        self._suspect: Load | None = None
        """What was asked for when a child died."""
        self._deaths = 0
        """Of children over its first record alone."""
        self._careful = 0
        """Records to be asked for one by one: one of them ended a child."""

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def load(self, request: Load) -> Batch:
        """The records that follow on `request.position`; ConverterEnded: it has to be asked again for the same ones."""
        if self._deaths >= _ATTEMPTS and self._suspect is not None and _same(self._suspect, request):
            return await self._give_up(request)
        alone = self._careful > 0
        asked = msgspec.structs.replace(request, limit=1) if alone else request
        child = self._child
        try:
            if child is None:
                child = self._child = await anyio.to_thread.run_sync(_Child, self._command, self._silence)
            batch = await anyio.to_thread.run_sync(child.load, asked, not alone, abandon_on_cancel=True)
        except _Gone as gone:
            self.close()
            if gone.at_work:
                known = self._suspect is not None and _same(self._suspect, request)
                self._deaths = (self._deaths if known else 0) + int(alone)
                self._suspect, self._careful = request, max(self._careful, request.limit)
            raise ConverterEnded(str(gone)) from gone
        except BaseException:
            # Cancelled in the middle of an answer: what comes next on this link is nobody's.
            self.close()
            raise
        self._suspect, self._deaths = None, 0
        self._careful = max(0, self._careful - 1)
        return batch

    async def _give_up(self, request: Load) -> Batch:
        batch = await anyio.to_thread.run_sync(_unread, request, self._deaths)
        self._suspect, self._deaths = None, 0
        return batch

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Gone(Exception):
    """The child has ended, or does not answer."""

    def __init__(self, text: str, *, at_work: bool) -> None:
        super().__init__(text)
        self.at_work = at_work
        """It had begun with what it was asked for: not one that cannot even start."""


class _Child:
    """One process. Its methods block, but for `end`; at most one of them runs at a time."""

    def __init__(self, command: Sequence[str], silence_seconds: float) -> None:
        self._link, theirs = socket.socketpair()
        # As a blocking socket with the kernel's own deadline: with Python's, a whole batch could not be waited for in
        # one call, and each call more waits for the interpreter when it returns.
        self._link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(silence_seconds), 0))
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # A Ctrl-C or a SIGTERM to the group ends the daemon; the child ends when its link does.
                start_new_session=True,
            )
        self._silence = silence_seconds
        self._in_use = threading.Lock()
        self._hello = False
        self._ahead: Load | None = None
        """Asked for before it was wanted; its answer is under way."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self, request: Load, ahead: bool) -> Batch:
        with self._in_use:
            return self._load(request, ahead)

    def end(self) -> None:
        """Kill it; who waits for it hears the end of the link."""
        self._process.kill()
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        with self._in_use:
            self._link.close()
        self._process.wait()

    def _load(self, request: Load, ahead: bool) -> Batch:
        if not self._hello:
            self._receive()
            self._hello = True
        early = self._ahead is not None and self._ahead == request
        if self._ahead is not None and not early:
            self._receive()
        if not early:
            self._send(request)
        self._ahead = None
        batch = self._batch()
        if early and not batch.items:
            # There was nothing when it was asked; there may be something now.
            self._send(request)
            batch = self._batch()
        if ahead and batch.exhausted < 0:
            self._ahead = msgspec.structs.replace(request, position=batch.after)
            self._send(self._ahead)
        return batch

    def _send(self, request: Load) -> None:
        body = _encode(request)
        try:
            self._link.sendall(HEAD.pack(len(body)) + body)
        except OSError as error:
            raise self._gone(str(error)) from error

    def _batch(self) -> Batch:
        answer = _answers.decode(self._receive())
        if isinstance(answer, Failure):
            raise OSError(answer.text)
        return answer.batch

    def _receive(self) -> bytes:
        return self._exactly(HEAD.unpack(self._exactly(HEAD.size))[0])

    def _exactly(self, size: int) -> bytes:
        try:
            data = receive(self._link, size)
        except BlockingIOError as error:
            raise self._gone(f"no answer for {self._silence:.0f} s") from error
        except OSError as error:
            raise self._gone(str(error)) from error
        if data is None:
            raise self._gone("it ended")
        return data

    def _gone(self, text: str) -> _Gone:
        return _Gone(f"converter process {self.pid}: {text}", at_work=self._hello)


def receive(link: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes; None at the end of the link. Blocks; BlockingIOError if the link's deadline passed."""
    data = b""
    while len(data) < size:
        # Interrupted by a stop of the process, the kernel gives less than all.
        part = link.recv(size - len(data), socket.MSG_WAITALL)
        if not part:
            return None
        data = data + part if data else part
    return data


def _same(one: Load, other: Load) -> bool:
    return (one.spool, one.position) == (other.spool, other.position)


def _unread(request: Load, deaths: int) -> Batch:
    reader = SpoolReader(Path(request.spool))
    reader.skip(request.position)
    found = reader.read(1, request.max_bytes)
    for record in found:
        log.error("spool_record_given_up", id=record.id.hex(), bytes=len(record.payload))
    items = [dead(record.id.hex(), record.payload, f"{deaths} converter processes ended over it") for record in found]
    after: Position = reader.position
    return Batch(items=items, after=after, exhausted=reader.exhausted, torn=reader.torn, kinds={"dead": len(items)})
