"""HTTP/1.1 without I/O: bytes of a connection to requests, bytes of an engine to one response, and answers of our own.

llhttp (through httptools) refuses what request smuggling lives on: conflicting lengths, folded headers, bare line
feeds, data after `Connection: close`. Requests go on with a length of our own making.
"""

from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus

import httptools
import msgspec

from daemon.tap.errors import Refused, UpstreamBroke

HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings", b"expect",
    }
)  # fmt: skip
"""Headers between two neighbours: they end here."""
_SLACK = 65_536
_MAX_REPLY_HEAD = 262_144
_OURS = HOP_BY_HOP | {b"host", b"content-length"}


class Request(msgspec.Struct):
    """One whole request."""

    method: bytes
    target: bytes
    """As it stands in the request line."""
    path: bytes
    """The target without its query."""
    headers: list[tuple[bytes, bytes, bytes]]
    """(name in lower case, name, value)"""
    body: bytes
    old: bool
    """HTTP/1.0: no chunked response may come back."""
    keep_alive: bool
    received: float
    """Unix seconds when it was whole."""

    def header(self, name: bytes) -> bytes:
        """Value of the header `name` (lower case), the last one if there are several, empty if there is none."""
        return next((value for lower, _, value in reversed(self.headers) if lower == name), b"")


class RequestParser:
    """Bytes of one client connection in, whole requests out.

    Methods named `on_` are httptools' callbacks.
    """

    def __init__(self, *, max_header_bytes: int, max_body_bytes: int, clock: Callable[[], float]) -> None:
        self._max_head, self._max_body, self._clock = max_header_bytes, max_body_bytes, clock
        self._parser = httptools.HttpRequestParser(self)
        self.requests: deque[Request] = deque()
        self.partial = False
        """A request has begun and is not whole."""
        self.expects = False
        """The client waits for `100 Continue` before it sends the body."""
        self._refusal: Refused | None = None
        self._head_done = False
        self.on_message_begin()
        self.partial = False

    def feed(self, data: bytes) -> None:
        """Take bytes; whole requests appear in `requests`.

        Raises:
            Refused: the connection cannot be understood any further; what is in `requests` still counts.
        """
        before = len(self.requests)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            # llhttp hands over without the body, so the request cannot be passed on as a plain one either.
            while len(self.requests) > before:
                self.requests.pop()
            raise Refused(400, "upgrade_refused", "this server does not switch protocols; leave out Upgrade") from error
        except httptools.HttpParserError as error:
            raise self._refusal or Refused(400, "malformed_http", f"malformed HTTP request: {error}") from error
        if self.partial:
            self._count_raw(len(data))
        if self._refusal is not None:
            raise self._refusal

    def on_message_begin(self) -> None:
        self.partial, self._head_done, self.expects = True, False, False
        self._url = b""
        self._headers: list[tuple[bytes, bytes, bytes]] = []
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = self._raw_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come the same way, and must not pass for headers.
        if self._head_done:
            return
        self._headers.append((name.lower(), name, value))
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        for name, _, value in self._headers:
            if name == b"expect":
                self.expects = value.lower() == b"100-continue"
            elif name == b"content-length" and value.isdigit() and int(value) > self._max_body:
                self._too_large()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body:
            self._body.clear()
            self._too_large()
        elif self._refusal is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self.partial = self.expects = False
        if self._refusal is not None:
            return
        self.requests.append(
            Request(
                method=self._parser.get_method(),
                target=self._url,
                path=self._url.partition(b"?")[0],
                headers=self._headers,
                body=self._body[0] if len(self._body) == 1 else b"".join(self._body),
                old=self._parser.get_http_version() == "1.0",
                # Must be asked inside this callback: afterwards the answer is always no.
                keep_alive=self._parser.should_keep_alive(),
                received=self._clock(),
            )
        )

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._max_head and self._refusal is None:
            self._headers.clear()
            self._refusal = Refused(431, "headers_too_large", f"request headers above {self._max_head} bytes")

    def _count_raw(self, size: int) -> None:
        """llhttp keeps an unfinished header or trailer to itself, so the callbacks alone would bound nothing."""
        self._raw_bytes += size
        if not self._head_done and self._raw_bytes > self._max_head + _SLACK:
            self._count_head(self._raw_bytes)
        elif self._raw_bytes > self._max_head + 2 * self._max_body + _SLACK:
            self._too_large()

    def _too_large(self) -> None:
        if self._refusal is None:
            self._refusal = Refused(413, "body_too_large", f"request body above {self._max_body} bytes")


class ReplyParser:
    """One response of the engine, read along while its bytes go to the client as they are."""

    def __init__(self, *, head_only: bool, max_capture_bytes: int) -> None:
        """
        Args:
            head_only: it answers a HEAD request and has no body, whatever its length says.
            max_capture_bytes: a longer body is not kept.
        """
        self._head_only, self._max_capture = head_only, max_capture_bytes
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.started = False
        """A byte has come."""
        self.done = False
        self.keep_alive = False
        """Whether the engine's connection can be used again."""
        self.content_type = b""
        self.content_encoding = b""
        self.body: list[bytes] = []
        self.overflow = False
        """The body was longer than `max_capture_bytes`; `body` is empty."""
        self._size = self._head_bytes = 0
        self._sized = False
        self._head_done = False
        self._surplus = False

    def feed(self, data: bytes) -> None:
        """Read along.

        Raises:
            UpstreamBroke: no HTTP, or more than one response: `data` must not go to the client.
        """
        self.started = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise UpstreamBroke(f"no HTTP response: {error}") from error
        if not self._head_done:
            self._head_bytes += len(data)
        if self._head_bytes > _MAX_REPLY_HEAD:
            raise UpstreamBroke(f"response headers above {_MAX_REPLY_HEAD} bytes")
        if self._surplus:
            raise UpstreamBroke("data after the end of the response")

    def eof(self) -> bool:
        """The engine closed: whether that is how this response ends."""
        if self._head_done and not self._sized and self.status >= 200:
            self.done = True
        return self.done

    def on_message_begin(self) -> None:
        if self.done:
            self._surplus = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return
        name = name.lower()
        if name == b"content-type":
            self.content_type = value
        elif name == b"content-encoding":
            self.content_encoding = value
        elif name in (b"content-length", b"transfer-encoding"):
            self._sized = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._head_done = True
        if self._head_only and self.status >= 200:
            self._finish()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._max_capture:
            self.overflow = True
            self.body.clear()
        else:
            self.body.append(body)

    def on_message_complete(self) -> None:
        if self.status < 200:
            # 100 and 103 announce the response, they are not it.
            self._head_done = self._sized = False
        elif not self.done:
            self._finish()

    def _finish(self) -> None:
        self.done, self.keep_alive = True, self._parser.should_keep_alive()


def request_bytes(request: Request, host: bytes, body: bytes) -> bytes:
    """`request` as it goes to the engine, with `body`: end-to-end headers as they came, the rest ours."""
    connection = b",".join([value for name, _, value in request.headers if name == b"connection"])
    dropped = _OURS.union(token.strip().lower() for token in connection.split(b",")) if connection else _OURS
    version = b"1.0" if request.old else b"1.1"
    lines = [b"%s %s HTTP/%s\r\nHost: %s\r\n" % (request.method, request.target, version, host)]
    lines += [b"%s: %s\r\n" % (name, value) for lower, name, value in request.headers if lower not in dropped]
    if body or request.header(b"content-length") or request.header(b"transfer-encoding"):
        lines.append(b"Content-Length: %d\r\n" % len(body))
    lines.append(b"\r\n")
    lines.append(body)
    return b"".join(lines)


def response_bytes(
    status: int, body: bytes, *, content_type: str = "application/json", close: bool = False, extra: Sequence[str] = ()
) -> bytes:
    """A response of our own."""
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {content_type}"]
    head += [f"Content-Length: {len(body)}", *extra]
    if close:
        head.append("Connection: close")
    return "\r\n".join((*head, "", "")).encode("latin-1") + body


def refusal_bytes(refusal: Refused, *, close: bool = False, head_only: bool = False) -> bytes:
    """`refusal` as an error in OpenAI's format; `head_only` for a HEAD request."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    extra = [f"Allow: {refusal.allow}"] if refusal.allow else []
    if refusal.status == 503:
        extra.append("Retry-After: 1")
    answer = response_bytes(refusal.status, msgspec.json.encode({"error": error}), close=close, extra=extra)
    return answer[: answer.index(b"\r\n\r\n") + 4] if head_only else answer
