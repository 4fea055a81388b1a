"""A server as a child process: its messages as the SDK's streams, over its standard input and output.

Not the SDK's own transport, because a server is not trusted: it gets an environment of PATH, HOME and LANG and what
its settings name, no more; a message has a largest size; its standard error is kept short and goes to the log without
secrets; and it does not outlive us, even if we are killed (`adapters.live.mcp.guardian`). The end follows the
specification: standard input is closed, then SIGTERM, then SIGKILL, for the whole process group.
"""

import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import structlog
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from actors.ports.errors import LiveApiUnavailable

_log = structlog.get_logger(__name__)
_INHERITED = ("PATH", "HOME", "LANG")
_GUARDIAN = str(Path(__file__).with_name("guardian.py"))
_LAST_WORDS_SECONDS = 0.5
_LINES, _LINE = 20, 500
"""Of standard error: lines that are kept, characters of each."""
_LOGGED = 100
"""Lines of standard error that one child may put into the log."""


def scrubbed(environment: Mapping[str, str], named: Mapping[str, str]) -> dict[str, str]:
    """What a child gets of our `environment`, with `named` on top."""
    return {name: environment[name] for name in _INHERITED if name in environment} | dict(named)


class Child:
    """A running server, as far as it was seen.

    Attributes:
        gone: set once it says nothing more.
        skipped: lines on its standard output that were no messages.
        too_long: it sent a message of more than the limit, and was cut off for it.
    """

    def __init__(self, name: str, clean: Callable[[str], str]) -> None:
        self._name, self._clean = name, clean
        self._errors: deque[str] = deque(maxlen=_LINES)
        self._logged = 0
        self.gone, self._heard = anyio.Event(), anyio.Event()
        self.skipped = 0
        self.too_long = False

    @property
    def last_words(self) -> str:
        """The end of its standard error, without secrets; empty if it said nothing."""
        return " | ".join(list(self._errors)[-3:])

    @asynccontextmanager
    async def run(
        self, command: Sequence[str], *, environment: Mapping[str, str], directory: str, max_message: int, grace: float
    ) -> AsyncIterator[TransportStreams]:
        """Start it; the SDK's streams end when it does.

        Args:
            max_message: bytes.
            grace: seconds for each step of its end.

        Raises:
            LiveApiUnavailable: it cannot be started.
        """
        lifeline, ours = os.pipe()
        try:
            try:
                process = await anyio.open_process(
                    [sys.executable, "-I", "-S", _GUARDIAN, str(lifeline), *command], env=dict(environment),
                    cwd=directory or None, start_new_session=True, pass_fds=(lifeline,),
                )  # fmt: skip
            except OSError as error:
                where = directory or sys.executable
                raise LiveApiUnavailable(f"{self._name}: cannot be started: {where}: {error.strerror}") from error
            finally:
                os.close(lifeline)
            inbox, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            outgoing, outbox = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, process, inbox, max_message)
                group.start_soon(self._write, process, outbox, inbox)
                group.start_soon(self._listen, process)
                try:
                    yield incoming, outgoing
                finally:
                    # Else a cancelled caller would leave the process behind; each step has its time.
                    with anyio.CancelScope(shield=True):
                        incoming.close()
                        outgoing.close()
                        await _end(process, grace)
                    group.cancel_scope.cancel()
        finally:
            os.close(ours)

    async def _read(
        self, process: Process, inbox: MemoryObjectSendStream[SessionMessage | Exception], limit: int
    ) -> None:
        assert process.stdout is not None
        line = bytearray()
        async with inbox:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                async for chunk in process.stdout:
                    *ends, rest = chunk.split(b"\n")
                    for end in ends:
                        line += end
                        await self._deliver(bytes(line), inbox)
                        line.clear()
                    line += rest
                    if len(line) > limit:
                        self.too_long = True
                        break
        # Its last words are on their way by another pipe.
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await self._heard.wait()
        self.gone.set()

    async def _deliver(self, line: bytes, inbox: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            # A server that prints is no reason to stop; its words are not repeated, they may hold anything.
            self.skipped += 1
            if self.skipped == 1:
                _log.warning("mcp.no_message", api=self._name, bytes=len(line))
            return
        await inbox.send(SessionMessage(message))

    async def _write(
        self,
        process: Process,
        outbox: MemoryObjectReceiveStream[SessionMessage],
        inbox: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdin is not None
        try:
            async with outbox:
                async for session in outbox:
                    text = session.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(text.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await inbox.aclose()  # the session sees an end instead of waiting for an answer

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for line in _lines(process.stderr):
                told = self._clean(line)
                self._errors.append(told)
                self._logged += 1
                if self._logged <= _LOGGED:
                    _log.debug("mcp.stderr", api=self._name, line=told)
        self._heard.set()


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[str]:
    """Lines of `stream`, each cut to `_LINE` characters."""
    kept = bytearray()
    async for chunk in stream:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            kept += end[: 4 * _LINE]
            text = kept[: 4 * _LINE].decode("utf-8", "replace").strip()[:_LINE]
            kept.clear()
            if text:
                yield text
        if len(kept) < 4 * _LINE:
            kept += rest[: 4 * _LINE]


async def _end(process: Process, grace: float) -> None:
    if process.stdin is not None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await process.stdin.aclose()
    # Its children too, which outlive it otherwise: the group is there as long as one of them is.
    if not await _gone(process, grace):
        _signal(process, signal.SIGTERM)
        await _gone(process, grace)
    _signal(process, signal.SIGKILL)
    if not await _gone(process, grace):
        _log.warning("mcp.unkillable", pid=process.pid)
        return
    await process.aclose()


async def _gone(process: Process, grace: float) -> bool:
    """Whether it ends within the grace; reads on meanwhile, so that it can."""
    with anyio.move_on_after(grace):
        await process.wait()
        return True
    return False


def _signal(process: Process, number: signal.Signals) -> None:
    # It leads its group by `start_new_session`; ProcessLookupError: the last of them is gone.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
