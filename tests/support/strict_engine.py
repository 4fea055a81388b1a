"""An engine on loopback that accepts no liberties: what a strict server would have to refuse is kept as a fault."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

from tests.support.patience import within
from tests.support.wire import REQUEST_LINE, Cut, Message, NotHttp, Reader, sized


class Line:
    """The engine's side of a connection, for scripts."""

    def __init__(self, sock: socket.socket, reader: Reader) -> None:
        self.sock, self.reader = sock, reader

    def send(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Each piece by itself; `pause` seconds between them. Raises OSError when the caller has left."""
        for number, piece in enumerate(pieces):
            if number and pause:
                time.sleep(pause)
            self.sock.sendall(piece)

    def left(self, seconds: float = within()) -> bool:
        """Whether the caller closes its side within `seconds`."""
        self.sock.settimeout(seconds)
        try:
            while self.reader.more():
                pass
        except TimeoutError:
            return False
        return True


Script = Callable[[Message, Line], bool]
"""Answers; True if the connection goes on."""


def echo(asked: Message, line: Line) -> bool:
    """Tells the caller what it asked: whoever gets somebody else's answer can see it."""
    line.send(sized(json.dumps({"target": asked.target.decode("latin-1"), "size": len(asked.body)}).encode()))
    return True


def sends(*pieces: bytes) -> Script:
    """The same for whatever is asked, piece by piece."""

    def script(asked: Message, line: Line) -> bool:
        line.send(*pieces)
        return True

    return script


class StrictEngine:
    """Listens on loopback, keeps what it gets, and answers as `script` says."""

    def __init__(self) -> None:
        self.script: Script = echo
        self.asked: list[Message] = []
        """Whole requests, in the order in which they were whole."""
        self.faults: list[str] = []
        """What a strict server would have had to refuse."""
        self.cut = 0
        """Requests that began and never became whole."""
        self.dialled = 0
        """Connections ever."""
        self.open = 0
        """Connections now."""
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self._socks: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def fresh(self) -> None:
        """Forget what was asked, and answer as at first. Connections stay: a tap's pool is part of what is tested."""
        self.script = echo
        self.asked, self.faults, self.cut = [], [], 0

    def close(self) -> None:
        """Gone, with all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """End all connections, as an engine that dies."""
        with self._lock:
            for sock in self._socks:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.dialled += 1
                self._socks.add(sock)
                self.open += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        reader = Reader(sock)
        line = Line(sock, reader)
        try:
            with sock, contextlib.suppress(OSError):
                while self._next(reader, line):
                    pass
        finally:
            with self._lock:
                self._socks.discard(sock)
                self.open -= 1

    def _next(self, reader: Reader, line: Line) -> bool:
        del reader.raw[: len(reader.raw) - len(reader.buffer)]
        if not reader.buffer and not reader.more():
            return False
        try:
            start = reader.line()
            match = REQUEST_LINE.fullmatch(start)
            if match is None:
                raise NotHttp(f"no request line: {start[:200]!r}")
            message = Message((match[1], match[2], match[3]), reader.fields())
            if len(message.all(b"host")) != 1:
                raise NotHttp(f"Host {message.all(b'host')}")
            message.body = reader.body(message) or b""
        except Cut:
            self.cut += 1
            return False
        except NotHttp as fault:
            self.faults.append(str(fault))
            return False
        self.asked.append(message)
        return self.script(message, line)
