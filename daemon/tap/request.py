"""A request as it was read, and as it goes on to an engine.

What follows from a head alone is worked out once for all requests of a connection that share it (`Head`): agents send
the same headers with every call.
"""

import msgspec

from actors.messages import Hints

_DROPPED = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings", b"expect",
        b"host", b"content-length", b"x-evolved-key",
    }
)  # fmt: skip
"""Headers that do not travel on as they are: what two neighbours say to each other, and what is ours to say."""


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
    framed: bool = False
    """It says how long its body is, if only that it has none."""
    agent: str = ""
    """As the address names it."""
    run: str = ""
    """As a header names it, else the address."""
    keep_alive: bool = True
    named: dict[bytes, bytes] = {}
    """Values by name in lower case; the last one if there are several."""
    hints: Hints = Hints()
    """All of them say this of the run that they belong to."""
    quiet: bool | None = None
    """It tells the door nothing; worked out there."""
    _onward: tuple[tuple[bytes, tuple[bytes, ...]], bytes] | None = None

    def __post_init__(self) -> None:
        self.named = {lower: value for lower, _, value in self.headers}
        self.run = self._said(b"x-evolved-trajectory") or self.run
        self.hints = Hints(trajectory_id=self.run, agent=self.agent, custom_id=self._said(b"x-evolved-id"))

    def _said(self, name: bytes) -> str:
        return self.named.get(name, b"").decode("utf-8", "replace").strip()[:256]

    def onward(self, host: bytes, without: tuple[bytes, ...]) -> bytes:
        """Its bytes for the engine at `host`, without length and blank line: end-to-end headers as they came but those
        `without` (in lower case), the rest ours.
        """
        known, asked = self._onward, (host, without)
        if known is None or known[0] != asked:
            dropped = _DROPPED.union(without)
            for lower, _, value in self.headers:
                if lower == b"connection":
                    # The headers that it names end here as well.
                    dropped = dropped.union([token.strip().lower() for token in value.split(b",")])
            version = b"1.0" if self.old else b"1.1"
            lines = [b"%b: %b\r\n" % (name, value) for lower, name, value in self.headers if lower not in dropped]
            line = b"%b %b HTTP/%b\r\nHost: %b\r\n" % (self.method, self.target, version, host)
            self._onward = known = (asked, line + b"".join(lines))
        return known[1]


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


def request_bytes(request: Request, host: bytes, body: bytes, without: tuple[bytes, ...] = ()) -> bytes:
    """`request` as it goes to the engine at `host`, with `body` and `without` these headers."""
    onward = request.head.onward(host, without)
    if body or request.head.framed:
        return b"%bContent-Length: %d\r\n\r\n%b" % (onward, len(body), body)
    return onward + b"\r\n"
