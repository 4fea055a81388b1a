"""HTTP/1.1 without I/O: bytes of a connection to requests, and answers of our own.

llhttp (through httptools) refuses what request smuggling lives on: conflicting lengths, folded headers, bare line
feeds, data after `Connection: close`. A head that it has let pass is not read again while it stays the same, see
`daemon.tap.head_cache`. Requests go on with a length of our own making.
"""

from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus

import httptools
import msgspec

from daemon.tap.body_budget import SMALL, BodyBudget
from daemon.tap.errors import Refused
from daemon.tap.head_cache import HeadCache
from daemon.tap.paths import cut_names
from daemon.tap.request import Head, Request

MAX_HEADER_BYTES = 65_536
"""Of a request: what nginx and vLLM's server take at most."""
_MOST_HEADERS = 128
"""Each takes some hundred bytes of memory, however short it is."""
_SLACK = 65_536
_UNASKED = 16_384
"""A body that may be larger is taken in only if its sender may come in: a refusal of a small request leaves its
connection as it was."""


class RequestParser:
    """Bytes of one client connection in, requests out. Methods named `on_` are httptools' callbacks."""

    def __init__(
        self,
        *,
        max_body_bytes: int,
        clock: Callable[[], float],
        admit: Callable[[Head], object] = lambda head: None,
        budget: BodyBudget | None = None,
    ) -> None:
        """`admit` refuses a body by its head; `budget` is what all connections hold together."""
        self._admit, self.budget = admit, budget or BodyBudget()
        self._max_body, self._clock = max_body_bytes, clock
        self._parser = httptools.HttpRequestParser(self)
        self.requests: deque[Request] = deque()
        self.waits = False
        """Its body waits for room, and should be read no further until `on_room` is called."""
        self.on_room: Callable[[], None] = lambda: None
        self._head_cache: HeadCache[Head] | None = None
        """The last request's head, if the next one may begin with the same."""
        self._body: list[bytes] = []
        self._held = 0
        self.on_message_begin()
        self.partial = False

    def again(self, data: bytes) -> Request | None:
        """The request that `data` is, if it is one, whole, with the head of the last one; else None, and `feed` it."""
        head_cache = self._head_cache
        if head_cache is None or self.partial or self.requests:
            return None
        body = head_cache.body(data)
        if body is None or len(body) > SMALL or len(body) > self._max_body:
            return None
        return Request(head_cache.head, body, self._clock())

    def feed(self, data: bytes) -> None:
        """Take bytes; requests appear in `requests`, and count even if what follows is refused. Feed no more then."""
        before, fresh = len(self.requests), not self.partial
        self._head_cache = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refused):
                raise error.__context__ from None
            raise Refused(400, "malformed_http", f"malformed HTTP request: {error}") from error
        if fresh and not self.partial and len(self.requests) == before + 1:
            if self._head.keep_alive and self._length >= 0:
                # One request, whole: the next one may have the same head.
                self._head_cache = HeadCache.of(data, self._length, self._head)
        elif self.partial and len(self.requests) == before:  # else most of it was of the requests before this one
            # llhttp keeps an unfinished header or trailer to itself, so the callbacks alone would bound nothing.
            self._raw_bytes += len(data)
            if self._raw_bytes > MAX_HEADER_BYTES + _SLACK + (2 * self._max_body if self.in_body else 0):
                raise self._too_large() if self.in_body else _long_head()

    def on_message_begin(self) -> None:
        self.partial = True
        """A request has begun and is not whole."""
        self.in_body = False
        """Its head is."""
        self.expects = False
        """The client waits for `100 Continue` before it sends the body."""
        self._body_bytes = self._raw_bytes = 0
        self._url, self._length = b"", -1
        self._headers: list[tuple[bytes, bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come the same way, and must not pass for headers.
        if self.in_body:
            return
        if len(self._headers) >= _MOST_HEADERS:
            raise _long_head()
        lower = name.lower()
        if lower == b"content-length":
            # llhttp has made sure that it is one, and a number.
            self._length = int(value) if value.isdigit() else -1
        else:
            self._headers.append((lower, name, value))

    def on_headers_complete(self) -> None:
        self.in_body = True
        if len(self._url) + sum(len(name) + len(value) for _, name, value in self._headers) > MAX_HEADER_BYTES:
            raise _long_head()
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Refused(505, "unknown_version", "HTTP/1.1 is spoken here")
        if self._parser.should_upgrade():
            # llhttp hands over without the body, so the request cannot be passed on as a plain one either.
            raise Refused(400, "upgrade_refused", "this server does not switch protocols; leave out Upgrade")
        codings = {value.strip().lower() for lower, _, value in self._headers if lower == b"transfer-encoding"}
        if not codings <= {b"chunked"}:
            # What the body is packed in would be lost on the way: this header ends here.
            raise Refused(501, "unknown_coding", "Transfer-Encoding: chunked is the only one known here")
        old = version == "1.0"
        if old and codings:
            # It knows no chunks: whoever is before us may have seen another end (RFC 9112, 6.1).
            raise Refused(400, "malformed_http", "Transfer-Encoding in an HTTP/1.0 request")
        target, agent, run = cut_names(self._url)
        framed = bool(codings) or self._length >= 0
        path = target.partition(b"?")[0]
        head = Head(self._parser.get_method(), target, path, self._headers, old, framed, agent, run)
        self._head = head
        # HTTP/1.0 knows no 100 either.
        self.expects = head.named.get(b"expect", b"").lower() == b"100-continue" and not old
        if codings or self.expects or self._length > _UNASKED:
            self._admit(head)
        if self._length > self._max_body:
            raise self._too_large()
        if self._length > SMALL:
            if self.budget.reserve(self._length, self._granted):
                self._held = self._length
            else:
                self.waits = True

    def _granted(self) -> None:
        self.waits, self._held = False, self._length
        self.on_room()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._length < 0:
            if self._body_bytes > self._max_body:
                raise self._too_large()
            if self._body_bytes > SMALL:
                if not self.budget.take(self._body_bytes - self._held):
                    raise no_room()
                self._held = self._body_bytes
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.partial = self.in_body = self.expects = False
        # Anywhere else than in this callback the answer is always no.
        self._head.keep_alive = self._parser.should_keep_alive()
        self.requests.append(Request(self._head, b"".join(self._body), self._clock(), self._held))
        self._body, self._held = [], 0
        self._wait_no_longer()  # if all of it came along with its head

    def release(self) -> None:
        """Give back what is held of bodies that nobody will answer."""
        self._wait_no_longer()
        self.budget.give(self._held + sum(request.held for request in self.requests))
        self._body, self._held, self.in_body = [], 0, False
        self.requests.clear()

    def _wait_no_longer(self) -> None:
        if self.waits:
            self.waits = False
            self.budget.leave(self._granted)

    def _too_large(self) -> Refused:
        return Refused(413, "body_too_large", f"request body above {self._max_body} bytes")


def _long_head() -> Refused:
    most = f"request headers above {MAX_HEADER_BYTES} bytes, or more than {_MOST_HEADERS}"
    return Refused(431, "headers_too_large", most)


def no_room() -> Refused:
    return Refused(503, "no_room", "too many large requests at once; send it again later")


def response_bytes(
    status: int, body: bytes, *, content_type: str = "application/json", close: bool = False, extra: Sequence[str] = ()
) -> bytes:
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
