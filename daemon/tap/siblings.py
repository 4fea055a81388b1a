"""What the workers of one tap tell each other: which engine a conversation is with.

Each worker has its own memory of routes, and a conversation's next call may come in at another one. So whatever a
worker learns, an id or an opening and the engine it belongs to, goes to the others as a datagram, before the agent can
have made a call of it. A datagram that finds no room is dropped and counted; the conversation is then told by its other
ids, or drawn again.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog

_KEYS = 200
"""Of 258 bytes at the most in one datagram."""
_BURST = 1024
"""Datagrams read before the loop gets its turn."""

log = structlog.get_logger(__name__)


class _Learned(msgspec.Struct, frozen=True, array_like=True):
    engine: str
    keys: list[bytes]


class Siblings:
    """One worker's line to the others."""

    def __init__(self, directory: Path, number: int, count: int) -> None:
        """
        Args:
            directory: where each worker has its socket.
            number: ours, from 0.
            count: of all workers.
        """
        self._others = [str(directory / f"routes.{other}") for other in range(count) if other != number]
        self._path = directory / f"routes.{number}"
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Learned)
        self._socket: socket.socket | None = None
        self._learned: Callable[[str, Sequence[bytes]], None] | None = None
        self.dropped = 0
        """Datagrams that a sibling had no room for, or that was not there."""
        self.heard = 0
        """Datagrams that came."""

    def open(self, learned: Callable[[str, Sequence[bytes]], None]) -> None:
        """Listen; `learned` gets what comes."""
        self._path.unlink(missing_ok=True)
        one = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        one.bind(str(self._path))
        self._learned = learned
        asyncio.get_running_loop().add_reader(one, self.catch_up)

    def tell(self, engine: str, keys: Sequence[bytes]) -> None:
        """Send to all others. Does not block, and never raises."""
        if self._socket is None:
            return
        for first in range(0, len(keys), _KEYS):
            data = self._encoder.encode(_Learned(engine, list(keys[first : first + _KEYS])))
            for other in self._others:
                try:
                    self._socket.sendto(data, other)
                except OSError:
                    self.dropped += 1

    def close(self) -> None:
        one, self._socket = self._socket, None
        if one is not None:
            asyncio.get_running_loop().remove_reader(one)
            one.close()
            self._path.unlink(missing_ok=True)

    def catch_up(self) -> None:
        """Take over what has come by now."""
        if self._socket is None or self._learned is None:
            return
        for _ in range(_BURST):
            try:
                data = self._socket.recv(1 << 16)
            except OSError:
                return
            try:
                told = self._decoder.decode(data)
            except msgspec.DecodeError:
                log.warning("sibling_unreadable", bytes=len(data))
                continue
            self.heard += 1
            self._learned(told.engine, told.keys)
