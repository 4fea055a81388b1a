"""One agent's connection: requests in, one after the other to whoever answers them.

Two tasks: one reads all the time, so that it notices at once when the agent leaves; the other answers.
"""

from collections.abc import Awaitable, Callable

import anyio
import structlog
from anyio.abc import ByteStream

from daemon.tap.deadlines import Guard, Watch
from daemon.tap.errors import Refused
from daemon.tap.http import Request, RequestParser, refusal_bytes
from daemon.tap.metrics import Counts
from daemon.tap.relay import GONE
from daemon.tap.upstream import discard

Answer = Callable[[Request, ByteStream, bool], Awaitable[bool]]
"""`(request, client, closing) -> the connection can go on`"""

_PIECE = 65_536
_PIPELINED = 16
"""Requests read ahead; more wait in the socket."""
_LINGER_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Connection:
    """Serves one connection to its end."""

    def __init__(
        self,
        stream: ByteStream,
        answer: Answer,
        parser: RequestParser,
        watch: Watch,
        counts: Counts,
        *,
        request_seconds: float,
        keep_alive_seconds: float,
    ) -> None:
        """
        Args:
            answer: who answers a request.
            request_seconds: from the first byte of a request to its last.
            keep_alive_seconds: how long to wait for the next one.
        """
        self._stream, self._answer, self._parser, self._watch, self._counts = stream, answer, parser, watch, counts
        self._request_seconds, self._keep_alive_seconds = request_seconds, keep_alive_seconds
        self._arrived = anyio.Event()
        self._taken = anyio.Event()
        self._refusal: Refused | None = None
        self._busy = False
        self._deaf = False
        """What comes in now is thrown away."""
        self._closing = False

    def finish(self) -> None:
        """Answer what has arrived, then close."""
        self._closing = True
        self._arrived.set()

    async def serve(self) -> None:
        """Until either side has had enough. Errors of the client end it quietly."""
        try:
            async with anyio.create_task_group() as group:
                with self._watch.guard(group.cancel_scope) as guard:
                    self._await_request(guard)
                    group.start_soon(self._read, group.cancel_scope, guard)
                    try:
                        await self._work(guard)
                        await self._linger(guard)
                    except GONE:
                        self._counts.errors["client_left"] += 1
                    group.cancel_scope.cancel()
        finally:
            await discard(self._stream)

    async def _read(self, scope: anyio.CancelScope, guard: Guard) -> None:
        try:
            while True:
                data = await self._stream.receive(_PIECE)
                if not self._deaf:
                    await self._take(data, guard)
        except GONE:
            # Half-closed counts as gone, as it does with nginx: there is no telling the two apart.
            scope.cancel()

    async def _take(self, data: bytes, guard: Guard) -> None:
        fresh = not self._parser.partial
        try:
            self._parser.feed(data)
        except Refused as refusal:
            self._refusal, self._deaf = refusal, True
        if self._parser.requests or self._refusal:
            self._arrived.set()
        elif self._parser.partial and fresh and not self._busy:
            guard.within(self._request_seconds, "request")
        if self._parser.expects and not self._busy and not self._parser.requests:
            self._parser.expects = False
            await self._stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(self._parser.requests) >= _PIPELINED:
            self._taken = anyio.Event()
            await self._taken.wait()

    async def _work(self, guard: Guard) -> None:
        while True:
            if not self._parser.requests:
                if self._refusal is not None:
                    self._counts.requests["refused", self._refusal.status] += 1
                    await self._stream.send(refusal_bytes(self._refusal, close=True))
                    return
                if self._closing and not self._parser.partial:
                    return
                self._arrived = anyio.Event()
                await self._arrived.wait()
                continue
            request = self._parser.requests.popleft()
            self._taken.set()
            self._busy = True
            guard.free()
            go_on = await self._answer(request, self._stream, self._closing)
            self._busy = False
            if not go_on or not request.keep_alive:
                return
            self._await_request(guard)

    def _await_request(self, guard: Guard) -> None:
        begun = self._parser.partial
        guard.within(self._request_seconds if begun else self._keep_alive_seconds, "request")

    async def _linger(self, guard: Guard) -> None:
        """Close without losing what was just sent: closing a socket with unread bytes resets it."""
        self._deaf = True
        self._taken.set()
        guard.free()
        with anyio.move_on_after(_LINGER_SECONDS):
            await self._stream.send_eof()
            # `_read` ends this as soon as the client has closed too.
            await anyio.sleep_forever()
