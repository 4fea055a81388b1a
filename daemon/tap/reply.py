"""The engine's side of HTTP/1.1 without I/O: bytes to responses, read along while they go on to the agent.

What llhttp lets pass and an agent's parser could read in another way is refused here: an agent that saw two responses
where the tap saw one would take one call's answer for another's.
"""

import httptools
import msgspec

from daemon.tap.body_budget import BodyBudget
from daemon.tap.errors import UpstreamBroke
from daemon.tap.head_cache import HeadCache

_MAX_REPLY_HEAD = 262_144
_DIGITS = 16
"""As many make no length that is ever reached."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"trailer"})


class ReplyHead(msgspec.Struct, gc=False, frozen=True):
    """What comes before a body. Responses of a connection may share it."""

    status: int = 0
    own: bytes = b""
    """Its bytes without anything about framing and connection, nor the blank line: those are the sender's."""
    content_type: str = ""
    content_encoding: str = ""


_NOTHING = ReplyHead()


class ReplyParser:
    """The responses of one engine connection, one after the other, read along while their bytes go to the client.
    Methods named `on_` are httptools' callbacks.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        # Called for every chunk of a stream, so it is the list's own method.
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._head_cache: HeadCache[ReplyHead] | None = None
        """The last head, if the next response may begin with the same."""
        self.begin(head_only=False, max_capture_bytes=0)

    def begin(self, *, head_only: bool, max_capture_bytes: int, copies: BodyBudget | None = None) -> None:
        """The next response; `head_only` has no body whatever its length says. One that is long, or finds no room in
        `copies`, is not kept.
        """
        self._head_only, self._max_capture, self._copies = head_only, max_capture_bytes, copies or BodyBudget()
        self.head = _NOTHING
        self.received = 0
        """Bytes that have come."""
        self.head_done = False
        """The final response's headers are whole (100 and 103 only announce it)."""
        self.done = False
        self.keep_alive = False
        """Whether the engine's connection can be used again."""
        self.fresh = b""
        """The part of the body that came last."""
        self.size = 0
        """Of the body, as far as it has come."""
        self.body: list[bytes] = []
        self.overflow = False
        """The body was longer than `max_capture_bytes`, or found no room; `body` is empty."""

    def feed(self, data: bytes) -> None:
        """Read along. UpstreamBroke: no HTTP, or more than one response; `data` must not go to the client."""
        fresh = not self.received
        self.received += len(data)
        if fresh and self._same_head(data):
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error.__context__, UpstreamBroke):
                raise error.__context__ from None
            raise UpstreamBroke(f"no HTTP response: {error}") from error
        finally:
            self._take(b"".join(self._pieces))
            self._pieces.clear()
        if self.fresh and self._head_only:
            # The client would take it for its next response.
            raise UpstreamBroke("a body in the response to HEAD")
        if not self.head_done and self.received > _MAX_REPLY_HEAD:
            raise UpstreamBroke(f"response headers above {_MAX_REPLY_HEAD} bytes")
        # Some statuses have no body whatever their length says: this one had, so the next one has.
        if fresh and self.done and self.keep_alive and self.size and self.size == self._length:
            self._head_cache = HeadCache.of(data, self._length, self.head)

    def _same_head(self, data: bytes) -> bool:
        """Whether `data` is one whole response with the head of the last one."""
        head_cache, self._head_cache = self._head_cache, None
        if head_cache is None or self._head_only:
            return False
        body = head_cache.body(data)
        if body is None:
            return False
        self._head_cache, self.head = head_cache, head_cache.head
        self.head_done = self.done = self.keep_alive = True
        self._take(body)
        return True

    def _take(self, body: bytes) -> None:
        self.fresh = body
        self.size += len(body)
        if self.overflow:
            return
        if self.size > self._max_capture or not self._copies.take(len(body)):
            self.overflow = True
            self.drop_copy()
        elif body:
            self.body.append(body)

    def drop_copy(self) -> None:
        """The copy of the body is not needed any more."""
        self._copies.give(sum(map(len, self.body)))
        self.body = []

    def eof(self) -> bool:
        if self.head_done and not self._sized and self.head.status >= 200:
            self.done = True
        return self.done

    def on_message_begin(self) -> None:
        if self.done:
            raise UpstreamBroke("data after the end of the response")
        self._reason, self._type, self._encoding = b"", "", ""
        self._own: list[bytes] = []
        self._length, self._sized = -1, False

    def on_status(self, reason: bytes) -> None:
        self._reason += reason
        if b"\x00" in reason:
            raise UpstreamBroke("NUL in the status line")

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come the same way.
        if self.head_done:
            return
        lower = name.lower()
        if lower not in _FRAMING:
            self._own.append(b"%b: %b\r\n" % (name, value))
        if lower == b"content-length":
            self._sized = True
            self._length = int(value) if value.isdigit() and len(value) < _DIGITS else -1
        elif lower == b"content-type":
            self._type = value.decode("latin-1")
        elif lower == b"content-encoding":
            self._encoding = value.decode("latin-1")
        elif lower == b"transfer-encoding":
            self._sized = True
            if value.strip().lower() != b"chunked" or self._parser.get_http_version() != "1.1":
                raise UpstreamBroke("a Transfer-Encoding that can be read in two ways")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            raise UpstreamBroke("another version of HTTP")
        own = b"HTTP/1.1 %d %b\r\n%b" % (status, self._reason, b"".join(self._own))
        self.head = ReplyHead(status, own, self._type, self._encoding)
        self.head_done = True
        if self._head_only and status >= 200:
            self._finish()

    def on_chunk_header(self) -> None:
        if self._head_only:
            raise UpstreamBroke("a body in the response to HEAD")

    def on_message_complete(self) -> None:
        if self.head.status < 200:
            # 100 and 103 announce the response, they are not it.
            self.head_done = False
        elif not self.done:
            self._finish()

    def _finish(self) -> None:
        # llhttp does not know of HEAD: it would take the next response for this one's body.
        self.done, self.keep_alive = True, self._parser.should_keep_alive() and not self._head_only
