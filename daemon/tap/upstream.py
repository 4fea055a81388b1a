"""One engine: connections to it, kept alive and used again, the most recent first.

A connection that the engine closes while it is idle leaves the pool at once, because its protocol is told; what remains
is the moment between the engine's close and our notice, which `daemon.tap.proxy` makes up for.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from daemon.tap.errors import UpstreamUnreachable
from daemon.tap.reply import ReplyParser
from daemon.tap.settings import Address

_IDLE_SECONDS = 4.0
"""A connection idle for longer is closed: uvicorn, and so vLLM, closes after 5, and a request that meets that moment is
sent twice."""


def bracketed(host: str) -> str:
    """`host` as it stands before a port."""
    return f"[{host}]" if ":" in host else host


class Caller(Protocol):
    """Who uses a connection at the moment."""

    def on_reply(self, data: bytes) -> None: ...
    def on_engine_lost(self, error: Exception | None) -> None: ...


class EngineConnection(asyncio.Protocol):
    """A connection to an engine: in the pool, or in the hands of one call."""

    __slots__ = ("_upstream", "caller", "idle_since", "reply", "transport", "used")

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self.transport: asyncio.Transport
        self.caller: Caller | None = None
        self.idle_since = 0.0
        self.used = False
        """It has carried a response before."""
        self.reply = ReplyParser()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.caller is not None:
            self.caller.on_reply(data)
        else:
            # Nobody asked for anything: whatever it is, it must not become the next call's answer.
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        caller, self.caller = self.caller, None
        if caller is not None:
            caller.on_engine_lost(exc)
        else:
            self._upstream.forget(self)

    def give_back(self) -> None:
        """Between two requests: can be used again."""
        self.caller = None
        self.used = True
        self.transport.resume_reading()
        self._upstream.keep(self)

    def drop(self) -> None:
        """Close at once: an engine notices, and stops generating."""
        self.caller = None
        self.transport.abort()


class Upstream:
    """One engine, its pool and its health."""

    def __init__(
        self,
        name: str,
        address: Address,
        *,
        weight: float,
        tls: ssl.SSLContext | None,
        clock: Callable[[], float],
    ) -> None:
        self.name, self.address, self.weight = name, address, weight
        self._tls, self._clock = tls, clock
        self._idle: list[EngineConnection] = []
        usual, host = address.port == (443 if tls else 80), bracketed(address.host)
        self.authority = (host if usual else f"{host}:{address.port}").encode()
        self.healthy = True
        self.closed = False
        """Gets no new trajectory while another engine is open."""
        self.trajectories = 0
        self.said_down = False
        """Its absence has been logged."""
        self.in_flight = 0

    @property
    def idle(self) -> int:
        return len(self._idle)

    def take(self) -> EngineConnection | None:
        """The connection used last, unless it has been idle for too long."""
        while self._idle:
            if self._clock() - self._idle[-1].idle_since >= _IDLE_SECONDS:
                return None
            found = self._idle.pop()
            if not found.transport.is_closing():
                return found
        return None

    async def dial(self) -> EngineConnection:
        where = self.address
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: EngineConnection(self), where.host, where.port, ssl=self._tls
            )
        except (OSError, ssl.SSLError) as error:
            raise UpstreamUnreachable(f"{where.host}:{where.port}: {error}") from error
        return connection

    async def probe(self) -> bool:
        """Whether GET /health is answered with 200; raises if nobody does."""
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port, ssl=self._tls)
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % self.authority)
            line = await reader.readuntil(b"\r\n")
            return line.split(b" ", 2)[1:2] == [b"200"]
        finally:
            writer.close()

    def keep(self, connection: EngineConnection) -> None:
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def forget(self, connection: EngineConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def sweep(self) -> None:
        limit = self._clock() - _IDLE_SECONDS
        late = [one for one in self._idle if one.idle_since <= limit]
        self._idle = [one for one in self._idle if one.idle_since > limit]
        for one in late:
            one.transport.close()

    def close(self) -> None:
        connections, self._idle = self._idle, []
        for one in connections:
            one.transport.abort()
