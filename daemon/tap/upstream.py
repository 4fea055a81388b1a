"""Connections to the engine: kept alive and used again, the most recent first."""

import time
from collections.abc import Callable

import anyio
from anyio.abc import ByteStream

from daemon.tap.errors import UpstreamUnreachable


class Upstream:
    """One engine. Holds only idle connections; whoever takes one gives it back or closes it."""

    def __init__(
        self, host: str, port: int, *, idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            host: name or address.
            port: TCP port.
            idle_seconds: a connection idle for longer is closed: the engine is about to close it too, and a request
                that meets that moment has to be sent twice.
            clock: seconds, monotonic.
        """
        self._host, self._port, self._idle_seconds, self._clock = host, port, idle_seconds, clock
        self._idle: list[tuple[float, ByteStream]] = []
        bare = f"[{host}]" if ":" in host else host
        self.authority = f"{bare}:{port}".encode()
        """For the Host header."""

    @property
    def idle(self) -> int:
        """Connections in the pool."""
        return len(self._idle)

    def take(self) -> ByteStream | None:
        """The connection used last, unless it has been idle for too long."""
        if self._idle and self._clock() - self._idle[-1][0] < self._idle_seconds:
            return self._idle.pop()[1]
        return None

    async def dial(self) -> ByteStream:
        """A new connection.

        Raises:
            UpstreamUnreachable: refused, unreachable, or the name does not resolve.
        """
        try:
            return await anyio.connect_tcp(self._host, self._port)
        except OSError as error:
            raise UpstreamUnreachable(f"{self._host}:{self._port}: {error}") from error

    def give(self, stream: ByteStream) -> None:
        """`stream` is between two requests and can be used again."""
        self._idle.append((self._clock(), stream))

    async def sweep(self) -> None:
        """Close what has been idle for too long."""
        limit = self._clock() - self._idle_seconds
        late = [stream for since, stream in self._idle if since <= limit]
        self._idle = [(since, stream) for since, stream in self._idle if since > limit]
        for stream in late:
            await discard(stream)

    async def aclose(self) -> None:
        """Close all idle connections."""
        streams, self._idle = [stream for _, stream in self._idle], []
        for stream in streams:
            await discard(stream)


async def discard(stream: ByteStream) -> None:
    """Close at once, even while being cancelled: an engine notices, and stops generating."""
    with anyio.CancelScope(shield=True):
        await anyio.aclose_forcefully(stream)
