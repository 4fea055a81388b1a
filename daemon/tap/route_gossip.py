"""What the workers of one tap tell each other: which engine a conversation is with.

Each worker has its own memory of routes, and a conversation's next call may come in at another one. So whatever a
worker learns, an id or an opening and the engine it belongs to, goes to the others as a message, before the agent can
have made a call of it. The messages go over a connection of each worker to each other one: a datagram to an unconnected
socket finds room for ten (`net.unix.max_dgram_qlen`), which one busy moment of its reader fills. What finds no room
waits its turn; what cannot be told is counted, and the conversation is then told by its other ids, or drawn again. A
worker that starts, or is started again, greets the others, and they tell it all that they remember.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import structlog

_KEYS = 200
"""Of 258 bytes at the most in one message."""
_ROOM = 4 << 20
"""Bytes that a sibling may be behind in the kernel, as far as that allows."""
_WAITING = 1 << 17
"""Keys that may wait for a sibling beyond that."""
_BURST = 1024
"""Messages read of one sibling before the loop gets its turn."""
_SENT = 64
"""Messages sent to one sibling before the loop gets its turn."""

log = structlog.get_logger(__name__)


class _Learned(msgspec.Struct, frozen=True, array_like=True):
    engine: str
    keys: list[bytes]
    greeting: int | None = None
    """Number of a worker that has just started, which nothing has been told yet."""


Memory = Callable[[], Iterable[tuple[str, bytes]]]
"""All that a worker remembers: engine and key, by engine, so that few messages do."""


class _Line:
    """The way to one sibling, connected when there is something to tell."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._encoder = msgspec.msgpack.Encoder()
        self._socket: socket.socket | None = None
        self._blocked = False
        self._waiting: deque[tuple[str, bytes]] = deque()
        self.dropped = 0

    def greet(self, number: int) -> None:
        """Say that worker `number` is here, if the sibling is there to hear it."""
        with contextlib.suppress(OSError):
            self._send(self._encoder.encode(_Learned("", [], number)))

    def tell(self, told: Iterable[tuple[str, bytes]]) -> None:
        """Send engines and keys, after all that waits. Does not block, and never raises."""
        self._waiting.extend(told)
        for _ in range(len(self._waiting) - _WAITING):
            self._waiting.popleft()
            self.dropped += 1
        if not self._blocked:
            self._flush()

    def close(self) -> None:
        self._block(False)
        one, self._socket = self._socket, None
        if one is not None:
            one.close()

    def _flush(self) -> None:
        for _ in range(_SENT):
            if not self._waiting:
                break
            engine = self._waiting[0][0]
            keys: list[bytes] = []
            while self._waiting and len(keys) < _KEYS and self._waiting[0][0] == engine:
                keys.append(self._waiting.popleft()[1])
            try:
                self._send(self._encoder.encode(_Learned(engine, keys)))
            except BlockingIOError:
                self._waiting.extendleft((engine, key) for key in reversed(keys))
                break
            except OSError:
                # It is not there. When it comes it greets, and is told all.
                self.dropped += len(keys) + len(self._waiting)
                self._waiting.clear()
                self.close()
        self._block(bool(self._waiting))

    def _block(self, blocked: bool) -> None:
        """Whether the rest goes when the socket has room again."""
        if self._socket is not None and blocked != self._blocked:
            self._blocked = blocked
            loop = asyncio.get_running_loop()
            if blocked:
                loop.add_writer(self._socket, self._flush)
            else:
                loop.remove_writer(self._socket)

    def _send(self, data: bytes) -> None:
        if self._socket is not None:
            with contextlib.suppress(ConnectionError):
                self._socket.send(data)
                return
            self.close()  # it was started again since
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
            one.connect(self._path)
        except OSError:
            one.close()
            raise
        self._socket = one
        one.send(data)


class RouteGossip:
    """One worker's lines to the others."""

    def __init__(self, directory: Path, number: int, count: int) -> None:
        """Worker `number` of `count`, from 0; each has its socket in `directory`."""
        self._lines = {other: _Line(directory / f"routes.{other}") for other in range(count) if other != number}
        self._path, self._number, self._count = directory / f"routes.{number}", number, count
        self._decoder = msgspec.msgpack.Decoder(_Learned)
        self._listener: socket.socket | None = None
        self._heard: set[socket.socket] = set()
        self._learned: Callable[[str, Sequence[bytes]], None] | None = None
        self._memory: Memory = tuple
        self.heard = 0

    @property
    def dropped(self) -> int:
        """Keys that a sibling had no room for, or that was not there."""
        return sum(line.dropped for line in self._lines.values())

    def open(self, learned: Callable[[str, Sequence[bytes]], None], memory: Memory = tuple) -> None:
        """Listen, and greet the others; `learned` gets what comes, and `memory` is for those that greet."""
        self._path.unlink(missing_ok=True)
        one = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one.setblocking(False)
        one.bind(str(self._path))
        one.listen(self._count)
        self._learned, self._memory = learned, memory
        asyncio.get_running_loop().add_reader(one, self.catch_up)
        for line in self._lines.values():
            line.greet(self._number)

    def tell(self, engine: str, keys: Sequence[bytes]) -> None:
        """Send to all others. Does not block, and never raises."""
        if self._listener is not None:
            for line in self._lines.values():
                line.tell((engine, key) for key in keys)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        one, self._listener = self._listener, None
        if one is None:
            return
        for line in self._lines.values():
            line.close()
        for each in (one, *self._heard):
            loop.remove_reader(each)
            each.close()
        self._heard.clear()
        self._path.unlink(missing_ok=True)

    def catch_up(self) -> None:
        if self._listener is None:
            return
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                one.setblocking(False)
                self._heard.add(one)
                loop.add_reader(one, self.catch_up)
        for one in [one for one in self._heard if not self._read(one)]:
            self._heard.remove(one)
            loop.remove_reader(one)
            one.close()

    def _read(self, one: socket.socket) -> bool:
        """What has come over `one`; whether its other end is still there."""
        for _ in range(_BURST):
            try:
                data = one.recv(1 << 16)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            try:
                told = self._decoder.decode(data)
            except msgspec.DecodeError:
                log.warning("sibling_unreadable", bytes=len(data))
                continue
            if told.greeting is not None:
                if (line := self._lines.get(told.greeting)) is not None:
                    line.tell(self._memory())
                continue
            self.heard += 1
            if self._learned is not None:
                self._learned(told.engine, told.keys)
        return True
