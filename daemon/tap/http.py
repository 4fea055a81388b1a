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

from daemon.tap.errors import Refused
from daemon.tap.head_cache import HeadCache
from daemon.tap.request import Head, Held, Request, Upload

_SLACK = 65_536
_UNASKED = 16_384
"""So much of a body is taken in before it is asked whether its sender may come in: a refusal of a small request leaves
its connection as it was."""
_FRAMING = frozenset({b"connection", b"content-length", b"transfer-encoding", b"expect"})


class RequestParser:
    """Bytes of one client connection in, requests out. Methods named `on_` are httptools' callbacks."""

    def __init__(
        self,
        *,
        max_header_bytes: int,
        max_body_bytes: int,
        hold: Callable[[bytes], int],
        clock: Callable[[], float],
        admit: Callable[[Head], None] = lambda head: None,
        held: Held | None = None,
    ) -> None:
        """`hold` gives, for a path with its query, the size up to which a body is waited for as a whole; `admit`
        refuses a body by its head; `held` is what all connections hold together.
        """
        self._admit, self._held = admit, held or Held()
        self._max_head, self._max_body, self._hold, self._clock = max_header_bytes, max_body_bytes, hold, clock
        self._parser = httptools.HttpRequestParser(self)
        self.requests: deque[Request] = deque()
        self.partial = False
        self.expects = False
        """The client waits for `100 Continue` before it sends the body."""
        self._refusal: Refused | None = None
        self._head_done = False
        self._upload: Upload | None = None
        self._head: Head | None = None
        self._head_cache: HeadCache | None = None
        """Its bytes, if the next request may begin with the same."""
        self._room = 0
        """The largest body that is waited for behind it."""
        self._body: list[bytes] = []
        self._body_held = 0
        self.on_message_begin()
        self.partial = False

    @property
    def in_body(self) -> bool:
        """A request's head has come, and was not refused, and its body has not."""
        return self.partial and self._head_done and self._refusal is None

    @property
    def uploading(self) -> bool:
        """The body that comes in now belongs to a request that has been handed out."""
        return self._upload is not None

    def again(self, data: bytes) -> Request | None:
        """The request that `data` is, if it is one, whole, with the head of the last one; else None, and `feed` it."""
        head, head_cache = self._head, self._head_cache
        if head_cache is None or head is None or self.partial or self.requests:
            return None
        body = head_cache.body(data)
        if body is None or len(body) > self._room:
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
            refusal = self._refusal or Refused(400, "malformed_http", f"malformed HTTP request: {error}")
            self._fail_upload(refusal)
            raise refusal from error
        if self.partial:
            if len(self.requests) == before:  # else most of it was of the requests before this one
                self._count_raw(len(data))
        elif fresh and len(self.requests) == before + 1:
            self._remember(data)
        if self._upload is not None:
            self._upload.tell()
        if self._refusal is not None:
            self._fail_upload(self._refusal)
            raise self._refusal

    def _remember(self, data: bytes) -> None:
        """`data` was one whole request: the next one may have the same head."""
        head, upload = self._head, self.requests[-1].upload
        if head is not None and head.keep_alive and upload is None and self._length >= 0 and not self._chunked:
            self._head_cache = HeadCache.of(data, self._length)
            self._room = min(self._max_body, self._hold(self._url))

    def on_message_begin(self) -> None:
        self.partial, self._head_done, self.expects = True, False, False
        self._url = b""
        self._headers: list[tuple[bytes, bytes, bytes]] = []
        self._connection = b""
        self._length = -1
        self._chunked = self._asked = False
        self._forget_body()
        self._head_bytes = self._body_bytes = self._raw_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come the same way, and must not pass for headers.
        if self._head_done:
            return
        lower = name.lower()
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > self._max_head:
            self._count_head(0)
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
        if self._chunked and version == "1.0":
            # HTTP/1.0 has no chunks: whoever is before us may have seen another end of this request (RFC 9112, 6.1).
            self._refusal = Refused(400, "malformed_http", "Transfer-Encoding in an HTTP/1.0 request")
        if self._length > _UNASKED:
            self._ask()
        if self._length > self._max_body:
            self._too_large()
        elif self._length > self._hold(self._url) and self._refusal is None:
            self._open(self._length)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > _UNASKED:
            self._ask()
        if self._body_bytes > self._max_body:
            self._forget_body()
            self._too_large()
        elif self._refusal is not None:
            self._forget_body()
        elif self._upload is not None:
            self._upload.pieces.append(body)
            self._upload.size += len(body)
        else:
            self._body.append(body)
            if self._body_bytes > self._hold(self._url) or not self._held.take(len(body)):
                self._open(self._length if self._length >= 0 else None)
            else:
                self._body_held += len(body)

    def on_message_complete(self) -> None:
        self.partial = self.expects = False
        if self._refusal is not None:
            return
        upload = self._upload
        if upload is not None:
            self._upload, upload.done = None, True
            upload.tell()
            return
        request = self._request(self._body[0] if len(self._body) == 1 else b"".join(self._body), None)
        request.held, self._body, self._body_held = self._body_held, [], 0
        self.requests.append(request)

    def _request(self, body: bytes, upload: Upload | None) -> Request:
        parser, url, last = self._parser, self._url, self._head
        head = Head(
            parser.get_method(),
            url,
            url.partition(b"?")[0],
            self._headers,
            parser.get_http_version() == "1.0",
            # Must be asked inside a callback: afterwards the answer is always no. For an upload it cannot be asked yet.
            parser.should_keep_alive() if upload is None else b"close" not in self._connection.lower(),
            self._connection,
            self._length >= 0 or self._chunked,
        )
        if last is None or not head.says(last):
            self._head = last = head
        return Request(last, body, self._clock(), upload)

    def release(self) -> None:
        self._forget_body()
        for request in self.requests:
            self.done_with(request)
        self.requests.clear()

    def done_with(self, request: Request) -> None:
        self._held.give(request.held)
        request.held = 0

    def _ask(self) -> None:
        """Ask, once, whether the sender of this body may come in, before more of it is taken."""
        if self._asked or self._refusal is not None:
            return
        self._asked = True
        try:
            self._admit(Head(self._parser.get_method(), self._url, self._url.partition(b"?")[0], self._headers))
        except Refused as refusal:
            self._refusal = refusal

    def _forget_body(self) -> None:
        self._held.give(self._body_held)
        self._body, self._body_held = [], 0

    def _open(self, length: int | None) -> None:
        # What has come goes on at once, and is held no longer.
        self._held.give(self._body_held)
        self._body_held = 0
        self._upload = Upload(length)
        self._upload.pieces, self._body = self._body, []
        self._upload.size = sum(map(len, self._upload.pieces))
        self.requests.append(self._request(b"", self._upload))

    def _fail_upload(self, refusal: Refused) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.refusal = refusal
            upload.tell()

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
