"""One worker process from the daemon's side: requests in, answers out, a deadline on each, death noticed at once.

Nothing here belongs to an event loop: the pipe is waited for where the caller runs, on trio or asyncio, so an
environment needs no task of its own. A worker ends with its stdin, that is with the daemon, and is killed when the
object goes.
"""

import contextlib
import json
import os
import subprocess
import time
import weakref
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread

from actors.ports.errors import EnvironmentFailed

_CHUNK = 1 << 16
MOST_ANSWER = 64 << 20
"""Bytes of one line; a worker that writes more is broken."""


class WorkerDied(EnvironmentFailed):
    """The process is gone, and with it everything that it held."""


class WorkerProcess:
    """A running worker. Requests are served one after the other; callers wait their turn.

    Args:
        process: started with pipes for stdin and stdout.
        deadline: seconds for one request; a worker that takes longer is killed.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", deadline: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._deadline = process, deadline
        self._to, self._back = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._back, False)
        self._turn = anyio.Lock()
        self._number = 0
        self._read = bytearray()
        weakref.finalize(self, _end, process)

    @classmethod
    async def start(cls, command: Sequence[str], env: dict[str, str], deadline: float) -> "WorkerProcess":
        """Start `command` with the variables of `env` alone.

        Raises:
            WorkerDied: it could not be started.
        """
        try:
            return cls(await anyio.to_thread.run_sync(_start, command, env), deadline)
        except OSError as error:
            raise WorkerDied(f"the worker cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def ask(self, operation: str, **fields: Any) -> Any:
        """Send a request and return what it answers. Not cut short by a cancellation, which would leave half a line in
        the pipe, but by the deadline.
        """
        async with self._turn:
            if not self.alive:
                raise WorkerDied(f"the worker has died ({self._status()})")
            self._number += 1
            line = json.dumps({"id": self._number, "op": operation, **fields}).encode("ascii") + b"\n"
            started = time.monotonic()
            with anyio.move_on_after(self._deadline, shield=True):
                return self._answer(await self._exchange(line))
            self.kill()
            took = time.monotonic() - started
            raise WorkerDied(f"no answer to {operation!r} in {took:.0f} seconds; killed the worker")

    def kill(self) -> None:
        """End the process. Its pipes stay open until the object goes: somebody may be waiting at them."""
        self._process.kill()
        self._process.wait()

    def _answer(self, line: bytes) -> Any:
        try:
            answer = json.loads(line)
            if answer["id"] != self._number:
                raise ValueError(f"an answer to {answer['id']!r}")
        except (ValueError, KeyError, TypeError) as error:
            self.kill()
            raise WorkerDied(f"the worker answers nonsense: {error}") from error
        if "value" not in answer:
            raise EnvironmentFailed(f"the worker: {answer.get('refused') or answer.get('failed')}")
        return answer["value"]

    async def _exchange(self, line: bytes) -> bytes:
        try:
            await self._write(line)
            while (end := self._read.find(b"\n")) < 0:
                await self._fill()
        except OSError as error:
            self.kill()
            raise WorkerDied(f"the worker has died ({self._status()}): {error}") from error
        answer = bytes(self._read[:end])
        del self._read[: end + 1]
        return answer

    async def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._to, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._to)

    async def _fill(self) -> None:
        await anyio.wait_readable(self._back)
        with contextlib.suppress(BlockingIOError):
            read = os.read(self._back, _CHUNK)
            if not read:
                raise OSError("end of its output")
            if len(self._read) > MOST_ANSWER:
                raise OSError(f"an answer of more than {MOST_ANSWER} bytes")
            self._read += read

    def _status(self) -> str:
        status = self._process.poll()
        return f"signal {-status}" if status is not None and status < 0 else f"status {status}"


def _start(command: Sequence[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
    # A session of its own: Ctrl-C in the terminal is for the daemon, which still closes its episodes.
    return subprocess.Popen(
        list(command), env=env, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, bufsize=0,
    )  # fmt: skip


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
