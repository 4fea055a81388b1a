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
_SLACK = 65_536
_UNASKED = 16_384
"""So much of a body is taken in before it is asked whether its sender may come in: a refusal of a small request leaves
its connection as it was."""
_MOST_HEADERS = 128
"""Each takes some hundred bytes of memory, however short it is."""
_FRAMING = frozenset({b"connection", b"content-length", b"transfer-encoding", b"expect"})


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
        self.partial = False
        """A request has begun and is not whole."""
        self.expects = False
        """The client waits for `100 Continue` before it sends the body."""
        self.waits = False
        """Its body waits for room, and should be read no further until `on_room` is called."""
        self.on_room: Callable[[], None] = lambda: None
        self._refusal: Refused | None = None
        self._head: Head | None = None
        """Of the last request."""
        self._head_cache: HeadCache | None = None
        """Its bytes, if the next request may begin with the same."""
        self._body: list[bytes] = []
        self._held = 0
        self.on_message_begin()
        self.partial = False

    @property
    def in_body(self) -> bool:
        """A request's head has come, and was not refused, and its body has not."""
        return self.partial and self._head_done and self._refusal is None

    def again(self, data: bytes) -> Request | None:
        """The request that `data` is, if it is one, whole, with the head of the last one; else None, and `feed` it."""
        head, head_cache = self._head, self._head_cache
        if head_cache is None or head is None or self.partial or self.requests:
            return None
        body = head_cache.body(data)
        if body is None or len(body) > SMALL or len(body) > self._max_body:
            return None
        return Request(head, body, self._clock())

    def feed(self, data: bytes) -> None:
        """Take bytes; requests appear in `requests`, and count even if what follows cannot be understood."""
        before, fresh = len(self.requests), not self.partial
        self._head_cache = None
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
            if len(self.requests) == before:  # else most of it was of the requests before this one
                self._count_raw(len(data))
        elif fresh and len(self.requests) == before + 1:
            self._remember(data)
        if self._refusal is not None:
            raise self._refusal

    def _remember(self, data: bytes) -> None:
        """`data` was one whole request: the next one may have the same head."""
        head = self.requests[-1].head
        if head.keep_alive and self._length >= 0 and not self._chunked:
            self._head, self._head_cache = head, HeadCache.of(data, self._length)

    def on_message_begin(self) -> None:
        self.partial, self._head_done, self.expects = True, False, False
        self._url = b""
        self._headers: list[tuple[bytes, bytes, bytes]] = []
        self._connection = b""
        self._length = -1
        self._chunked = self._asked = False
        self._forget_body()
        self.body_bytes = self._head_bytes = self._raw_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come the same way, and must not pass for headers.
        if self._head_done:
            return
        lower = name.lower()
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEADER_BYTES or len(self._headers) >= _MOST_HEADERS:
            self._refuse_head()
        if lower in _FRAMING:
            self._frame(lower, value)
        if lower != b"content-length":
            self._headers.append((lower, name, value))

    def _frame(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            # llhttp has made sure that it is one, and a number.
            self._length = int(value) if value.isdigit() else -1
        elif name == b"connection":
            self._connection = b"%b,%b" % (self._connection, value) if self._connection else value
        elif name == b"expect":
            self.expects = value.lower() == b"100-continue"
        else:
            self._chunked = True
            if value.strip().lower() != b"chunked" and self._refusal is None:
                # What the body is packed in would be lost on the way: this header ends here.
                self._refusal = Refused(501, "unknown_coding", "Transfer-Encoding: chunked is the only one known here")

    def on_headers_complete(self) -> None:
        self._head_done = True
        version = self._parser.get_http_version()
        if version != "1.1" and version != "1.0":
            self._refusal = Refused(505, "unknown_version", "HTTP/1.1 is spoken here")
        if version == "1.0":
            # It knows neither chunks nor 100: whoever is before us may have seen another end (RFC 9112, 6.1).
            self.expects = False
            if self._chunked:
                self._refusal = Refused(400, "malformed_http", "Transfer-Encoding in an HTTP/1.0 request")
        if self._length > _UNASKED or self.expects:
            self._ask()
        if self._length > self._max_body:
            self._too_large()
        if self._length > SMALL and self._refusal is None:
            if self.budget.reserve(self._length, self._granted):
                self._held = self._length
            else:
                self.waits = True

    def _granted(self) -> None:
        self.waits, self._held = False, self._length
        self.on_room()

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self.body_bytes > _UNASKED:
            self._ask()
        if self.body_bytes > self._max_body:
            self._too_large()
        if self._length < 0 and self._refusal is None and self.body_bytes > SMALL:
            self._grow(self.body_bytes - self._held)
        if self._refusal is None:
            self._body.append(body)
        else:
            self._forget_body()

    def _grow(self, size: int) -> None:
        if self.budget.take(size):
            self._held += size
        else:
            self._refusal = no_room()

    def on_message_complete(self) -> None:
        self.partial = self.expects = False
        if self._refusal is not None:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self.requests.append(Request(self._made(), body, self._clock(), self._held))
        self._body, self._held = [], 0
        if self.waits:  # all of it came along with its head
            self.budget.leave(self._granted)
            self.waits = False

    def _made(self) -> Head:
        parser = self._parser
        target, agent, run = cut_names(self._url)
        return Head(
            parser.get_method(),
            target,
            target.partition(b"?")[0],
            self._headers,
            parser.get_http_version() == "1.0",
            # Must be asked in the callback at the end of a message: anywhere else the answer is always no.
            not self.partial and parser.should_keep_alive(),
            self._connection,
            self._length >= 0 or self._chunked,
            agent,
            run,
        )

    def release(self) -> None:
        self._forget_body()
        for request in self.requests:
            self.done_with(request)
        self.requests.clear()

    def done_with(self, request: Request) -> None:
        held, request.held = request.held, 0
        self.budget.give(held)

    def _ask(self) -> None:
        """Ask, once, whether the sender of this body may come in, before more of it is taken."""
        if self._asked or self._refusal is not None:
            return
        self._asked = True
        try:
            self._admit(self._made())
        except Refused as refusal:
            self._refusal = refusal

    def _forget_body(self) -> None:
        if self.waits:
            self.waits = False
            self.budget.leave(self._granted)
        held, self._body, self._held = self._held, [], 0
        if held:
            self.budget.give(held)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEADER_BYTES:
            self._refuse_head()

    def _refuse_head(self) -> None:
        if self._refusal is None:
            said = f"request headers above {MAX_HEADER_BYTES} bytes, or more than {_MOST_HEADERS}"
            self._refusal = Refused(431, "headers_too_large", said)
        self._headers.clear()

    def _count_raw(self, size: int) -> None:
        """llhttp keeps an unfinished header or trailer to itself, so the callbacks alone would bound nothing."""
        self._raw_bytes += size
        if not self._head_done and self._raw_bytes > MAX_HEADER_BYTES + _SLACK:
            self._count_head(self._raw_bytes)
        elif self._raw_bytes > MAX_HEADER_BYTES + 2 * self._max_body + _SLACK:
            self._too_large()

    def _too_large(self) -> None:
        if self._refusal is None:
            self._refusal = Refused(413, "body_too_large", f"request body above {self._max_body} bytes")


def no_room() -> Refused:
    return Refused(503, "no_room", "too many large requests at once; send it again later")


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body; not empty, which would be its end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


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
