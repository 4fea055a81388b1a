"""A request as it was read, and as it goes on to an engine.

What follows from a head alone is worked out once for all requests of a connection that share it (`Head`): agents send
the same headers with every call.
"""

import msgspec

from actors.messages import Hints

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings", b"expect",
    }
)  # fmt: skip
"""Headers between two neighbours: they end here."""
DROPPED = HOP_BY_HOP | {b"host", b"content-length", b"x-evolved-key"}
"""Headers of a request that do not travel on as they are."""
_USUAL = frozenset({b"", b"keep-alive", b"Keep-Alive", b"close"})
"""Connection headers that name no header."""


class Head(msgspec.Struct, gc=False, eq=False):
    """What comes before a body. Requests share it, so nobody changes what it says."""

    method: bytes
    target: bytes
    """Without the names in the address."""
    path: bytes
    headers: list[tuple[bytes, bytes, bytes]]
    """(name in lower case, name, value), all but Content-Length, which is each body's own"""
    old: bool = False
    """HTTP/1.0: no chunked response may come back."""
    keep_alive: bool = True
    connection: bytes = b""
    """What the Connection headers say, joined by commas."""
    framed: bool = False
    agent: str = ""
    """As the address names it."""
    run: str = ""
    """As a header names it, else the address."""
    named: dict[bytes, bytes] = {}
    """Values by name in lower case; the last one if there are several."""
    hints: Hints | None = None
    """Worked out by whoever copies it first."""
    quiet: bool | None = None
    """It tells the door nothing; worked out there."""
    _onward: tuple[bytes, frozenset[bytes], bytes] | None = None

    def __post_init__(self) -> None:
        self.named = {lower: value for lower, _, value in self.headers}
        said = self.named.get(b"x-evolved-trajectory", b"").decode("utf-8", "replace").strip()[:256]
        self.run = said or self.run

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
    """One request, whole."""

    head: Head
    body: bytes
    received: float
    """Unix seconds when it could be passed on."""
    held: int = 0
    """Bytes of it that count in the `BodyBudget`."""

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
    head = request.head
    onward = head.onward(host, dropped)
    if body or head.framed:
        return b"%bContent-Length: %d\r\n\r\n%b" % (onward, len(body), body)
    return onward + b"\r\n"
