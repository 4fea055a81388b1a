"""A request as it was read, and as it goes on to an engine.

What follows from a head alone is worked out once for all requests of a connection that share it (`Head`): agents send
the same headers with every call.
"""

from collections.abc import Callable

import msgspec

from actors.messages import Hints
from daemon.tap.errors import Refused

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings", b"expect",
    }
)  # fmt: skip
"""Headers between two neighbours: they end here."""
DROPPED = HOP_BY_HOP | {b"host", b"content-length"}
"""Headers of a request that do not travel on as they are."""
_USUAL = frozenset({b"", b"keep-alive", b"Keep-Alive", b"close"})
"""Connection headers that name no header."""


_HELD = 256 << 20
"""Of one process. Some 500 conversations of half a megabyte wait for an engine at a time; above that calls pass without
token ids, and are counted as `not_held`."""


class Held:
    """Bytes of request bodies that a tap holds in memory, of all its connections together. What finds no room is not
    refused, for it may be an agent's: it is passed on as it comes, without being held or kept.
    """

    __slots__ = ("limit", "refused", "taken")

    def __init__(self, limit: int = _HELD) -> None:
        self.limit = limit
        self.taken = 0
        self.refused = 0

    def take(self, size: int) -> bool:
        if self.taken + size > self.limit:
            self.refused += 1
            return False
        self.taken += size
        return True

    def give(self, size: int) -> None:
        self.taken -= size


class Upload:
    """The body of a request that is too large to wait for: passed on as it comes."""

    __slots__ = ("done", "length", "listener", "over", "pieces", "refusal", "size")

    def __init__(self, length: int | None) -> None:
        self.length = length
        """Bytes as announced; None if the client sends it in chunks."""
        self.size = 0
        self.pieces: list[bytes] = []
        """Not yet taken by the listener."""
        self.done = self.over = False
        """All of it has come; nobody waits for more of it."""
        self.refusal: Refused | None = None
        self.listener: Callable[[], None] | None = None
        """Called whenever there is something new."""

    def take(self) -> bytes:
        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def tell(self) -> None:
        if self.listener is not None:
            self.listener()


class Copied(msgspec.Struct, frozen=True, gc=False):
    """What a record says of a head."""

    path: str
    hints: Hints


class Head(msgspec.Struct, gc=False, eq=False):
    """What comes before a body. Requests share it, so nobody changes what it says."""

    method: bytes
    target: bytes
    path: bytes
    headers: list[tuple[bytes, bytes, bytes]]
    """(name in lower case, name, value), all but Content-Length, which is each body's own"""
    old: bool = False
    """HTTP/1.0: no chunked response may come back."""
    keep_alive: bool = True
    connection: bytes = b""
    """What the Connection headers say, joined by commas."""
    framed: bool = False
    named: dict[bytes, bytes] = {}
    """Values by name in lower case; the last one if there are several."""
    copied: Copied | None = None
    """Worked out by whoever copies it first."""
    quiet: bool | None = None
    """It tells the door nothing; worked out there."""
    _onward: tuple[bytes, frozenset[bytes], bytes] | None = None

    def __post_init__(self) -> None:
        self.named = {lower: value for lower, _, value in self.headers}

    def says(self, other: "Head") -> bool:
        return (
            self.headers == other.headers
            and self.target == other.target
            and self.method == other.method
            and (self.old, self.keep_alive, self.framed) == (other.old, other.keep_alive, other.framed)
        )

    def onward(self, host: bytes, dropped: frozenset[bytes]) -> bytes:
        """Its bytes for an engine, without length and blank line: end-to-end headers as they came but those `dropped`
        (in lower case), the rest ours.
        """
        known = self._onward
        if known is None or known[0] is not host or known[1] is not dropped:
            self._onward = known = (host, dropped, self._rendered(host, dropped))
        return known[2]

    def _rendered(self, host: bytes, dropped: frozenset[bytes]) -> bytes:
        if self.connection not in _USUAL:
            # The headers that it names end here as well.
            dropped = dropped.union([token.strip().lower() for token in self.connection.split(b",")])
        version = b"1.0" if self.old else b"1.1"
        lines = [b"%b: %b\r\n" % (name, value) for lower, name, value in self.headers if lower not in dropped]
        return b"%b %b HTTP/%b\r\nHost: %b\r\n%b" % (self.method, self.target, version, host, b"".join(lines))


class Request(msgspec.Struct, gc=False):
    """One request: whole, or its head with the body still coming as an `upload`."""

    head: Head
    body: bytes
    received: float
    """Unix seconds when it could be passed on."""
    upload: Upload | None = None
    """Where the body comes from, if `body` does not hold it."""
    held: int = 0
    """Bytes of it that count as held, see `Held`."""

    @property
    def method(self) -> bytes:
        return self.head.method

    @property
    def path(self) -> bytes:
        return self.head.path

    def header(self, name: bytes) -> bytes:
        """Value of the header `name` (lower case), the last one if there are several, empty if there is none."""
        return self.head.named.get(name, b"")


def request_bytes(request: Request, host: bytes, body: bytes, *, dropped: frozenset[bytes] = DROPPED) -> bytes:
    """`request` as it goes to the engine, with `body`; `DROPPED` must be among the `dropped` headers."""
    head, upload = request.head, request.upload
    onward = head.onward(host, dropped)
    if upload is not None:
        if upload.length is None:
            return b"%bTransfer-Encoding: chunked\r\n\r\n%b" % (onward, body)
        return b"%bContent-Length: %d\r\n\r\n%b" % (onward, upload.length, body)
    if body or head.framed:
        return b"%bContent-Length: %d\r\n\r\n%b" % (onward, len(body), body)
    return onward + b"\r\n"
