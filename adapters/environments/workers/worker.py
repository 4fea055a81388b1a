"""One worker process as we see it: started with a scrubbed environment, asked, watched, started again."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.messages import Task
from actors.ports.errors import EnvironmentFailed
from adapters.environments.workers import wire

T = TypeVar("T")
_MAX_BACKOFF_SECONDS = 60.0
_END_SECONDS = 5.0
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from adapters.environments.workers.process import main; main()"
)


class WorkerDown(EnvironmentFailed):
    """No worker process, and none to be had for now."""


class Worker:
    """A template process that episodes are forked from.

    Args:
        build: what it makes.
        keep: names of our environment variables that it may see, beside PATH and LANG.
        start_seconds: until the environment must be built.
        ask_seconds: until a question must be answered.
        backoff: seconds before a second start; doubled with each start that no episode came of, to a minute.
    """

    def __init__(
        self, build: wire.Build, *, keep: tuple[str, ...], start_seconds: float, ask_seconds: float, backoff: float,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._build, self._keep, self._clock = build, keep, clock
        self._start_seconds, self._ask_seconds, self._backoff = start_seconds, ask_seconds, backoff
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._home: Path | None = None
        self._lock = threading.RLock()
        self._name = ""
        self._failures, self._not_before = 0, 0.0
        self.starts = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process, 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start its process, without waiting for it; not in a thread that ends before the process should, which the
        kernel would take for our death.

        Raises:
            WorkerDown: it is too early to try again.
        """
        wait = self._not_before - self._clock()
        if wait > 0:
            raise WorkerDown(f"the environment's worker ended {self._failures} times in a row; again in {wait:.1f} s")
        self.stop()
        self._failures += 1
        delay = min(_MAX_BACKOFF_SECONDS, self._backoff * 2.0 ** min(self._failures - 1, 16))
        self._not_before = self._clock() + delay
        self._home = Path(tempfile.mkdtemp(prefix="evolved-environment-"))
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-I", "-c", _BOOT, json.dumps([os.path.abspath(path) for path in sys.path]),
                    str(os.getpid()), str(theirs.fileno()), str(self._home),
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=self._home,
                start_new_session=True, env=scrubbed(os.environ, self._home, self._keep),
            )  # fmt: skip
        self._control, self._name = ours, ""
        self.starts += 1
        with self._sending():
            ours.settimeout(self._start_seconds)
            ours.sendall(wire.frame(wire.encode(self._build)))

    def await_ready(self) -> str:
        """Wait until its environment is built; returns the environment's name.

        Raises:
            WorkerDown: it cannot be built, or not in time; the message says why.
        """
        with self._lock:
            if not self._name:
                self._name = self._answer(str, self._start_seconds)
            return self._name

    def ask(self, request: wire.Sample | wire.Describe | wire.ListTools, type_: type[T]) -> T:
        with self._lock:
            self.await_ready()
            with self._sending() as control:
                control.settimeout(self._ask_seconds)
                control.sendall(wire.frame(wire.encode(request)))
            return self._answer(type_, self._ask_seconds)

    def open(self, task: Task, channel: socket.socket) -> None:
        """Have it fork an episode's process with `channel`.

        Raises:
            WorkerDown: it is gone.
        """
        with self._lock, self._sending() as control:
            control.settimeout(self._ask_seconds)
            body = wire.frame(wire.encode(wire.Open(task)))
            socket.send_fds(control, [body[: wire.HEADER.size]], [channel.fileno()])
            control.sendall(body[wire.HEADER.size :])

    def proved(self) -> None:
        """An episode was opened: it works."""
        self._failures, self._not_before = 0, 0.0

    def stop(self) -> None:
        process, control, home = self._process, self._control, self._home
        self._process = self._control = self._home = None
        if control is not None:
            control.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its session
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)

    def _answer(self, type_: type[T], seconds: float) -> T:
        with self._sending() as control:
            control.settimeout(seconds)
            reply = msgspec.msgpack.decode(wire.receive(control, self._build.max_bytes)[0], type=wire.Reply)
        return reading(reply, type_)

    @contextlib.contextmanager
    def _sending(self) -> Iterator[socket.socket]:
        """The control socket; whatever goes wrong with it, the process is of no use any more."""
        if self._control is None:
            raise WorkerDown("the environment's worker is not running")
        try:
            yield self._control
        except TimeoutError:
            self.stop()
            raise WorkerTimeout(
                "the environment's worker did not answer in time (start_seconds for the first answer, ask_seconds for "
                "tasks and tools) and was ended"
            ) from None
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            self.stop()
            raise WorkerDown(f"the environment's worker ended ({type(error).__name__})") from None


class WorkerTimeout(WorkerDown):
    """It hangs, and was ended."""


def reading(reply: wire.Reply, type_: type[T]) -> T:
    """What a reply says.

    Raises:
        ValueError: the environment's own.
        TooLarge: the answer is over the limit.
        EnvironmentFailed: the environment broke down, or said something else than the Protocol has.
    """
    if reply.problem == "value":
        raise ValueError(reply.message)
    if reply.problem == "large":
        raise TooLarge(f"{reply.message}; the limit is max_bytes")
    if reply.problem:
        raise EnvironmentFailed(reply.message)
    try:
        return msgspec.msgpack.decode(reply.value, type=type_)
    except msgspec.DecodeError as error:
        raise EnvironmentFailed(f"the environment's answer is not what the Protocol says: {error}") from error


class TooLarge(EnvironmentFailed):
    """An answer that is not taken."""


def scrubbed(present: Mapping[str, str], home: Path, keep: tuple[str, ...]) -> dict[str, str]:
    """The variables that a worker sees: none of our secrets, nor anything else that nobody named."""
    kept = {name: present[name] for name in ("PATH", "LANG", *keep) if name in present}
    return {"PATH": os.defpath, "LANG": "C.UTF-8"} | kept | {"HOME": str(home)}
