"""HTTP/1.1 over a raw socket, read without any liberty, and nothing of the tap's code in it.

    Client (bytes as a test wrote them) -> tap process -> StrictEngine (keeps what it gets, accepts no liberties)

Blocking sockets on purpose: what is sent, in which pieces, and when, is decided by the test, not by a library.
"""

import contextlib
import json
import re
import socket
import struct

import msgspec

from tests.support.patience import within

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
REQUEST_LINE = re.compile(rb"(%b) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])" % _TOKEN)
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(
    rb"(%s):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[ \t]*" % _TOKEN
)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")


class NotHttp(Exception):
    """What a strict reader of RFC 9112 must not accept."""


class Cut(Exception):
    """The other side closed before the message was whole."""


class Field(msgspec.Struct, frozen=True):
    """A header as it came."""

    name: bytes
    value: bytes


class Message(msgspec.Struct):
    """A request or a response, read without any liberty."""

    start: tuple[bytes, bytes, bytes]
    """Method, target, minor version; or status, reason (empty), minor version."""
    fields: list[Field]
    body: bytes = b""
    interim: list[int] = []
    """1xx that came before a response."""

    @property
    def status(self) -> int:
        """Of a response."""
        return int(self.start[0])

    @property
    def target(self) -> bytes:
        """Of a request."""
        return self.start[1]

    @property
    def short(self) -> tuple[bytes, bytes, bytes]:
        """Method, target and body of a request: what tests compare."""
        return *self.start[:2], self.body

    @property
    def json(self) -> dict:
        """The body."""
        return json.loads(self.body)

    def all(self, name: bytes) -> list[bytes]:
        """Values of the fields `name` (lower case)."""
        return [field.value for field in self.fields if field.name.lower() == name]

    def one(self, name: bytes) -> bytes:
        """Value of the only field `name`; empty if there is none."""
        values = self.all(name)
        if len(values) > 1:
            raise NotHttp(f"{name!r} {len(values)} times")
        return values[0] if values else b""


class Reader:
    """Strict messages out of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.buffer = b""
        """Read and not yet used."""
        self.raw = bytearray()
        """Everything that ever came."""
        self.ended = False

    def more(self) -> bool:
        """Read once; False at the end."""
        if self.ended:
            return False
        try:
            data = self._sock.recv(262_144)
        except ConnectionError:
            data = b""
        self.ended = not data
        self.buffer += data
        self.raw += data
        return bool(data)

    def exactly(self, size: int) -> bytes:
        """Raises Cut."""
        while len(self.buffer) < size:
            if not self.more():
                raise Cut
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def line(self) -> bytes:
        """Up to CRLF, without it. Raises Cut, NotHttp for a bare CR or LF."""
        while (end := self.buffer.find(b"\r\n")) < 0:
            if b"\n" in self.buffer:
                raise NotHttp(f"a bare line feed: {self.buffer[:200]!r}")
            if not self.more():
                raise Cut
        line, self.buffer = self.buffer[:end], self.buffer[end + 2 :]
        if b"\n" in line or b"\r" in line:
            raise NotHttp(f"a bare CR or LF: {line[:200]!r}")
        return line

    def fields(self) -> list[Field]:
        """Up to the empty line. Raises Cut, NotHttp."""
        found = []
        while line := self.line():
            match = _FIELD.fullmatch(line)
            if match is None:
                raise NotHttp(f"no header: {line[:200]!r}")
            found.append(Field(match[1], match[2]))
        return found

    def chunks(self) -> bytes:
        """A chunked body with its trailers. Raises Cut, NotHttp."""
        body = []
        while True:
            match = _SIZE.fullmatch(line := self.line())
            if match is None:
                raise NotHttp(f"no chunk size: {line[:200]!r}")
            if not (size := int(match[1], 16)):
                self.fields()
                return b"".join(body)
            body.append(self.exactly(size))
            if self.exactly(2) != b"\r\n":
                raise NotHttp("a chunk without its end")

    def body(self, message: Message) -> bytes | None:
        """As its headers say; None if they say nothing. Raises Cut, NotHttp."""
        coding, lengths = message.all(b"transfer-encoding"), message.all(b"content-length")
        if coding and lengths:
            raise NotHttp("Content-Length and Transfer-Encoding")
        if coding:
            if [one.lower() for one in coding] != [b"chunked"] or message.start[2] == b"0":
                raise NotHttp(f"Transfer-Encoding {coding}")
            return self.chunks()
        if lengths:
            if len(lengths) > 1 or not lengths[0].isdigit():
                raise NotHttp(f"Content-Length {lengths}")
            return self.exactly(int(lengths[0]))
        return None


class Client:
    """One connection to a tap."""

    def __init__(self, port: int, *, timeout: float = within(), receive_buffer: int = 0) -> None:
        """
        Args:
            timeout: of each read, seconds; TimeoutError after it.
            receive_buffer: of the kernel, bytes; 0 leaves it.
        """
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(timeout)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(self.sock)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """All of it, unless the tap has closed already: what it said before then can still be read."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def response(self, *, head_only: bool = False) -> Message:
        """The next final response, read strictly.

        Raises:
            Cut: the tap closed before it was whole. NotHttp: it is none.
        """
        interim: list[int] = []
        while True:
            match = _STATUS_LINE.fullmatch(line := self.reader.line())
            if match is None:
                raise NotHttp(f"no status line: {line[:200]!r}")
            message = Message((match[2], b"", match[1]), self.reader.fields(), interim=interim)
            if message.status >= 200:
                break
            interim.append(message.status)
        if head_only or message.status in (204, 304):
            return message
        body = self.reader.body(message)
        if body is None:
            body = self.rest()
        message.body = body
        return message

    def outcome(self) -> Message | None:
        """The next response; None if the tap closes before it is whole."""
        try:
            return self.response()
        except Cut:
            return None

    def responses(self) -> list[Message]:
        """All until the tap closes."""
        found = []
        while self.reader.buffer or self.reader.more():
            found.append(self.response())
        return found

    def rest(self) -> bytes:
        """All bytes until the tap closes."""
        while self.reader.more():
            pass
        data, self.reader.buffer = self.reader.buffer, b""
        return data

    def half_close(self) -> None:
        """No more to say, still listening."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Leave with an RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        """Leave as usual."""
        self.sock.close()


def asks(path: bytes, body: bytes = b"{}", *fields: bytes) -> bytes:
    """A whole request with a body."""
    told = (b"Host: tap", *fields, b"Content-Length: %d" % len(body))
    return b"\r\n".join((b"POST %b HTTP/1.1" % path, *told, b"", body))


def sized(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole response."""
    return b"\r\n".join((b"HTTP/1.1 " + status, *fields, b"Content-Length: %d" % len(body), b"", body))


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)
