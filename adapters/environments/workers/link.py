"""`EpisodeProcess`: our end of one episode in its own process."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, TypeVar

import anyio
import anyio.abc
import msgspec

from actors.messages import ToolCall
from actors.ports.errors import EnvironmentFailed
from adapters.environments.remote import Opening, Stepped
from adapters.environments.workers import wire
from adapters.environments.workers.worker import TooLarge, Worker, reading

T = TypeVar("T")
Ending = Literal["deaths", "timeouts", "reaped", "lost", "oversized", "closed", "refused"]
_CLOSE_SECONDS = 5.0
_CHUNK = 1 << 16


class EpisodeProcess:
    """The link to one episode's process, which ends with it.

    Args:
        stream: its socket.
        worker: what it was forked from.
        ended: told once, how it ended.
        seconds: for a step, an evaluation, a state.
        start_seconds: for the opening.
    """

    def __init__(
        self, stream: anyio.abc.UNIXSocketStream, worker: Worker, *, ended: Callable[["EpisodeProcess", Ending], None],
        clock: Callable[[], float], seconds: float, start_seconds: float, max_bytes: int,
    ) -> None:  # fmt: skip
        self.worker, self._stream, self._ended, self._clock = worker, stream, ended, clock
        self._seconds, self._start_seconds, self._max_bytes = seconds, start_seconds, max_bytes
        self._buffer = bytearray()
        self._lock = anyio.Lock()
        self._process = -1
        self._why = ""
        self.used = clock()

    async def open(self) -> Opening:
        """Wait for the first words of its process.

        Raises:
            EnvironmentFailed: the task could not be begun.
        """
        async with self._within(self._start_seconds):
            pid = msgspec.msgpack.decode(await self._frame(), type=wire.Born).pid
            with contextlib.suppress(ProcessLookupError):
                self._process = os.pidfd_open(pid) if pid else -1
            reply = msgspec.msgpack.decode(await self._frame(), type=wire.Reply)
        try:
            return reading(reply, Opening)
        except BaseException as error:
            await self.drop("oversized" if isinstance(error, TooLarge) else "refused", str(error))
            if isinstance(error, ValueError):
                raise EnvironmentFailed(str(error)) from error
            raise

    async def step(self, calls: Sequence[ToolCall], text: str) -> Stepped:
        return await self._call(wire.Step(tuple(calls), text), Stepped)

    async def evaluate(self) -> float:
        return await self._call(wire.Evaluate(), float)

    async def state(self) -> dict[str, Any]:
        return await self._call(wire.State(), dict[str, Any])

    async def aclose(self) -> None:
        """Let the episode close itself, for some seconds; then its process is ended."""
        with anyio.CancelScope(shield=True):
            if not self._why:
                with (
                    anyio.move_on_after(_CLOSE_SECONDS),
                    contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError),
                ):
                    async with self._lock:
                        await self._stream.send(wire.frame(wire.encode(wire.Close())))
                        with contextlib.suppress(anyio.EndOfStream):
                            while True:  # until it has closed its end
                                await self._stream.receive(_CHUNK)
            await self.drop("closed", "the episode was closed")

    def end(self, how: Ending, why: str) -> None:
        """Kill its process, if there is one, and be done."""
        if self._why:
            return
        self._why = why
        if self._process >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.close(self._process)
            self._process = -1
        self._ended(self, how)

    async def drop(self, how: Ending, why: str) -> None:
        """`end`, and close the socket."""
        self.end(how, why)
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)

    async def _call(self, request: wire.Call, type_: type[T]) -> T:
        async with self._within(self._seconds):
            await self._stream.send(wire.frame(wire.encode(request)))
            reply = msgspec.msgpack.decode(await self._frame(), type=wire.Reply)
        try:
            return reading(reply, type_)
        except TooLarge as error:
            await self.drop("oversized", str(error))  # the agent has not seen what its step led to: no way on
            raise
        except ValueError as error:
            raise EnvironmentFailed(str(error)) from error

    @contextlib.asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """One exchange at a time; one that is not completed leaves a stream that nobody can make sense of."""
        async with self._lock:
            if self._why:
                raise EnvironmentFailed(self._why)
            self.used = self._clock()
            try:
                with anyio.fail_after(seconds):
                    yield
            except TimeoutError:
                why = f"the environment did not answer within {seconds:g} s; its process was ended"
                await self.drop("timeouts", why)
                raise EnvironmentFailed(why) from None
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                if self._why:  # ended by somebody else meanwhile
                    raise EnvironmentFailed(self._why) from None
                lost = not self.worker.alive
                why = "the environment's worker ended" if lost else "the episode's process ended in mid-call (a crash?)"
                await self.drop("lost" if lost else "deaths", why)
                raise EnvironmentFailed(why) from None
            except (ValueError, TypeError, msgspec.MsgspecError) as error:  # a frame too long, or one of nonsense
                await self.drop("oversized", f"{error}")
                raise EnvironmentFailed(str(error)) from error
            except BaseException:
                await self.drop("closed", "a call to the episode was broken off")
                raise
            self.used = self._clock()

    async def _frame(self) -> bytes:
        size = wire.length(await self._exactly(wire.HEADER.size), self._max_bytes)
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += await self._stream.receive(_CHUNK)
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found
