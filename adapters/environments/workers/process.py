"""The worker's side: a template that has the environment, and a forked process for each episode.

The template runs nothing but `sample`, `profile`, `tools` and forks, and has no event loop and no thread of its own, so
that a fork copies a process at rest. An environment must therefore start no thread and open no connection when it is
built; in `reset` it may do what it likes. Whatever happens to us, nothing stays behind: the end of our process closes
the sockets, on which every process here ends; one that hangs in a call is killed by its template, or by the kernel when
the template itself dies (prctl(2), PR_SET_PDEATHSIG).
"""

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec

from actors.ports.environments import Environment, Episode, Stateful
from actors.ports.errors import AdapterError
from adapters.environments.remote import Opening, Stepped
from adapters.environments.workers import wire

_PR_SET_PDEATHSIG = 1
_FIRST_BYTES = 1 << 24
"""The longest body of the first request, which tells the limit."""
_MESSAGE_CHARACTERS = 2000


def main() -> None:
    """The template's whole life; arguments: our pid, the control socket's descriptor, its home."""
    parent, descriptor, home = int(sys.argv[-3]), int(sys.argv[-2]), Path(sys.argv[-1])
    _die_with(parent, signal.SIGTERM)
    faulthandler.enable()
    _Template(socket.socket(fileno=descriptor), home).run()


class _Template:
    """Builds the environment, answers for it, and forks an episode's process at each `Open`."""

    def __init__(self, control: socket.socket, home: Path) -> None:
        self._control, self._home = control, home
        self._decoder = msgspec.msgpack.Decoder(wire.Control)
        self._children: set[int] = set()
        self._max_bytes, self._idle_seconds = _FIRST_BYTES, 0.0
        self._environment: Environment | None = None

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        with contextlib.suppress(EOFError, OSError):
            while True:
                body, descriptors = wire.receive(self._control, self._max_bytes)
                self._reap()
                request = self._decoder.decode(body)
                if isinstance(request, wire.Open):
                    self._open(request, socket.socket(fileno=descriptors[0]))
                else:
                    self._control.sendall(wire.frame(_reply(partial(self._answer, request), self._max_bytes)))
        self._end()

    def _answer(self, request: wire.Control) -> Any:
        if isinstance(request, wire.Build):
            self._max_bytes, self._idle_seconds = request.max_bytes, request.idle_seconds
            self._environment = load(request.target)(**request.options)
            # What there is now will live as long as we: the collector need not touch, and so copy, it in every fork.
            gc.collect()
            gc.freeze()
            return self._built.name
        if isinstance(request, wire.Sample):
            return self._built.sample(request.seed, request.split, request.families)
        return self._built.profile() if isinstance(request, wire.Describe) else self._built.tools()

    @property
    def _built(self) -> Environment:
        if self._environment is None:
            raise RuntimeError("the environment was not built")
        return self._environment

    def _open(self, request: wire.Open, channel: socket.socket) -> None:
        template = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # the limit of processes
            with contextlib.suppress(OSError):
                channel.sendall(wire.frame(wire.encode(wire.Born(0))))
                channel.sendall(wire.frame(_failure(error)))
            channel.close()
            return
        if pid:
            self._children.add(pid)
            channel.close()
            return
        with _leaving():
            _die_with(template, signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._control.close()  # or nobody could see the template's end by it
            channel.sendall(wire.frame(wire.encode(wire.Born(os.getpid()))))
            channel.settimeout(self._idle_seconds)
            runner = asyncio.Runner()
            try:
                episode = runner.run(self._built.reset(request.task))
            except Exception as error:  # whatever it raises, it is told, and the process ends
                channel.sendall(wire.frame(_failure(error)))
            else:
                _Player(channel, runner, episode, self._max_bytes).run()

    def _reap(self) -> None:
        """Only our own: the environment may have children that it waits for itself."""
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._children.discard(pid)

    def _end(self, number: int = 0, at: FrameType | None = None) -> NoReturn:
        """We are gone: leave nothing behind."""
        self._reap()
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._home, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)  # and this process
        os._exit(0)


class _Player:
    """Serves one episode until it is closed, or nobody asks any more."""

    def __init__(self, channel: socket.socket, runner: asyncio.Runner, episode: Episode, max_bytes: int) -> None:
        self._channel, self._runner, self._episode, self._max_bytes = channel, runner, episode, max_bytes
        self._decoder = msgspec.msgpack.Decoder(wire.Call)
        self._told: bytes = b""

    def run(self) -> None:
        self._send(_reply(self._opening, self._max_bytes))
        try:
            with contextlib.suppress(EOFError, OSError):  # a time-out is an OSError
                while self._serve(wire.receive(self._channel, self._max_bytes)[0]):
                    pass
        finally:
            self._runner.run(self._episode.aclose())

    def _serve(self, body: bytes) -> bool:
        request = self._decoder.decode(body)
        if isinstance(request, wire.Close):
            return False  # the socket's end is the answer
        self._send(_reply(lambda: self._answer(request), self._max_bytes))
        return True

    def _answer(self, request: wire.Step | wire.Evaluate | wire.State) -> Any:
        episode = self._episode
        if isinstance(request, wire.Step):
            seen = self._runner.run(episode.step(request.calls, request.text))
            tools = wire.encode(episode.tools)
            told, self._told = self._told, tools
            return Stepped(
                text=seen.text, done=seen.done, messages=seen.messages, tools=None if tools == told else episode.tools
            )
        if isinstance(request, wire.Evaluate):
            return self._runner.run(episode.evaluate())
        if not isinstance(episode, Stateful):
            raise TypeError("this episode shows no state")
        return self._runner.run(episode.state())

    def _opening(self) -> Opening:
        episode = self._episode
        self._told = wire.encode(episode.tools)
        return Opening(
            messages=episode.messages,
            tools=episode.tools,
            stateful=isinstance(episode, Stateful),
        )

    def _send(self, body: bytes) -> None:
        self._channel.sendall(wire.frame(body))


def load(target: str) -> Any:
    """What `module:attribute` names.

    Raises:
        ImportError: no such module.
        AttributeError: it has no such attribute.
    """
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _reply(answer: Any, max_bytes: int) -> bytes:
    """The body of the reply with what `answer()` gives."""
    try:
        body = wire.encode(wire.Reply(value=msgspec.Raw(wire.encode(answer()))))
    except Exception as error:
        return _failure(error)
    if len(body) > max_bytes:
        return wire.encode(wire.Reply(problem="large", message=f"an answer of {len(body)} bytes"))
    return body


def _failure(error: Exception) -> bytes:
    told = str(error) if isinstance(error, AdapterError | ValueError) else f"{type(error).__name__}: {error}"
    problem = "value" if isinstance(error, ValueError) else "failed"
    return wire.encode(wire.Reply(problem=problem, message=told[:_MESSAGE_CHARACTERS]))


@contextlib.contextmanager
def _leaving() -> Iterator[None]:
    """A forked process ends here, whatever happened: it must not go on with its template's work."""
    try:
        yield
    except BrokenPipeError:  # nobody waits for it any more
        pass
    except BaseException as error:
        print(f"environment worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def _die_with(parent: int, number: signal.Signals) -> None:
    """Have the kernel send `number` to this process when `parent` dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died in between
        os._exit(1)
