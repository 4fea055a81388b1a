"""One engine: connections to it, kept alive and used again, the most recent first.

A connection that the engine closes while it is idle leaves the pool at once, because its protocol is told; what remains
is the moment between the engine's close and our notice, which `daemon.tap.proxy` makes up for.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, cast

import structlog

from daemon.tap.reply import ReplyParser
from daemon.tap.settings import Address

_IDLE_SECONDS = 4.0
"""A connection idle for longer is closed: uvicorn, and so vLLM, closes after 5, and a request that meets that moment is
sent twice."""

log = structlog.get_logger(__name__)


def bracketed(host: str) -> str:
    """`host` as it stands before a port."""
    return f"[{host}]" if ":" in host else host


class Caller(Protocol):
    """Who uses a connection at the moment."""

    def on_reply(self, data: bytes) -> None: ...
    def on_engine_lost(self, error: Exception | None) -> None: ...


class EngineConnection(asyncio.Protocol):
    """A connection to an engine: in the pool, or in the hands of one call."""

    def __init__(self, upstream: "Upstream") -> None:
        self._upstream = upstream
        self.transport: asyncio.Transport
        self.call: Caller | None = None
        self.idle_since = 0.0
        self.used = False
        """It has carried a response before."""
        self.reply = ReplyParser()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.call is not None:
            self.call.on_reply(data)
        else:
            # Nobody asked for anything: whatever it is, it must not become the next call's answer.
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.on_engine_lost(exc)
        elif self in self._upstream.pool:
            self._upstream.pool.remove(self)

    def give_back(self) -> None:
        """Between two requests: can be used again."""
        self.call, self.used = None, True
        self.transport.resume_reading()
        self._upstream.keep(self)

    def drop(self) -> None:
        """Close at once: an engine notices, and stops generating."""
        self.call = None
        self.transport.abort()


class Upstream:
    """One engine, its pool and its health."""

    def __init__(
        self, name: str, address: Address, *, weight: float, tls: ssl.SSLContext | None, clock: Callable[[], float]
    ) -> None:
        self.name, self.address, self.weight = name, address, weight
        self._tls, self._clock = tls, clock
        self.pool: list[EngineConnection] = []
        usual, host = address.port == (443 if tls else 80), bracketed(address.host)
        self.authority = (host if usual else f"{host}:{address.port}").encode()
        self.healthy = True
        """It can be reached; of several, it says itself that it is well."""
        self.closed = False
        """Gets no new trajectory while another engine is open."""
        self.trajectories = 0
        self.in_flight = 0

    def tell(self, *, healthy: bool) -> None:
        """Hear of its health; a change is logged."""
        if healthy != self.healthy:
            self.healthy = healthy
            where = self.authority.decode()
            (log.info if healthy else log.error)("upstream_back" if healthy else "upstream_down", upstream=where)

    def take(self) -> EngineConnection | None:
        """The connection used last, unless it has been idle for too long."""
        while self.pool and self._clock() - self.pool[-1].idle_since < _IDLE_SECONDS:
            found = self.pool.pop()
            if not found.transport.is_closing():
                return found
        return None

    async def dial(self) -> EngineConnection:
        """A new connection; OSError if there is none to be had."""
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: EngineConnection(self), self.address.host, self.address.port, ssl=self._tls
        )
        return connection

    async def probe(self) -> bool:
        """Whether GET /health is answered with 200; raises if nobody does."""
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port, ssl=self._tls)
        try:
            writer.write(b"GET /health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % self.authority)
            return (await reader.readexactly(len(b"HTTP/1.1 200"))).endswith(b" 200")
        finally:
            writer.close()

    def keep(self, connection: EngineConnection) -> None:
        connection.idle_since = self._clock()
        self.pool.append(connection)

    def sweep(self) -> None:
        """Close what has been idle for too long."""
        while self.pool and self._clock() - self.pool[0].idle_since >= _IDLE_SECONDS:
            self.pool.pop(0).transport.close()

    def close(self) -> None:
        while self.pool:
            self.pool.pop().transport.abort()
