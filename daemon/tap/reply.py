"""The engine's side of HTTP/1.1 without I/O: bytes to responses, read along while they go on to the agent.

What llhttp lets pass and an agent's parser could read in another way is refused here: an agent that saw two responses
where the tap saw one would take one call's answer for another's.
"""

import httptools

from daemon.tap.errors import UpstreamBroke

_MAX_REPLY_HEAD = 262_144


class ReplyParser:
    """The responses of one engine connection, one after the other, read along while their bytes go to the client."""

    __slots__ = (
        "_broken", "_head_bytes", "_head_only", "_max_capture", "_parser", "_size", "_sized", "body",
        "content_encoding", "content_type", "done", "fresh", "head_done", "headers", "keep_alive", "overflow", "reason",
        "started", "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._broken = ""
        """What is wrong with it that the parser let pass."""
        self.begin(head_only=False, max_capture_bytes=0)

    def begin(self, *, head_only: bool, max_capture_bytes: int, collect: bool = False) -> None:
        """The next response.

        Args:
            head_only: it answers a HEAD request and has no body, whatever its length says.
            max_capture_bytes: a longer body is not kept.
            collect: gather the body's pieces in `fresh` for whoever rewrites them.
        """
        self._head_only, self._max_capture = head_only, max_capture_bytes
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.started = False
        """A byte has come."""
        self.head_done = False
        """The final response's headers are whole (100 and 103 only announce it)."""
        self.done = False
        self.keep_alive = False
        """Whether the engine's connection can be used again."""
        self.content_type = b""
        self.content_encoding = b""
        self.body: list[bytes] = []
        self.fresh: list[bytes] | None = [] if collect else None
        self.overflow = False
        """The body was longer than `max_capture_bytes`; `body` is empty."""
        self._size = self._head_bytes = 0
        self._sized = False

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
        if not self.head_done:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_REPLY_HEAD:
                raise UpstreamBroke(f"response headers above {_MAX_REPLY_HEAD} bytes")
        if self._broken:
            raise UpstreamBroke(self._broken)

    def eof(self) -> bool:
        """The engine closed: whether that is how this response ends."""
        if self.head_done and not self._sized and self.status >= 200:
            self.done = True
        return self.done

    def on_message_begin(self) -> None:
        if self.done:
            self._broken = "data after the end of the response"

    def on_status(self, reason: bytes) -> None:
        self.reason += reason
        if b"\x00" in reason:
            self._broken = "NUL in the status line"

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_done:
            return
        self.headers.append((name, value))
        name = name.lower()
        if name == b"content-type":
            self.content_type = value
        elif name == b"content-encoding":
            self.content_encoding = value
        elif name == b"content-length":
            self._sized = True
        elif name == b"transfer-encoding":
            self._sized = True
            if value.strip().lower() != b"chunked" or self._parser.get_http_version() != "1.1":
                self._broken = "a Transfer-Encoding that can be read in two ways"

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self._parser.get_http_version() not in ("1.1", "1.0"):
            self._broken = "another version of HTTP"
        self.head_done = True
        if self._head_only and self.status >= 200:
            self._finish()

    def on_chunk_header(self) -> None:
        if self._head_only:
            self._broken = "a body in the response to HEAD"

    def on_body(self, body: bytes) -> None:
        if self._head_only:
            # The client would take it for its next response.
            self._broken = "a body in the response to HEAD"
        if self.fresh is not None:
            self.fresh.append(body)
        self._size += len(body)
        if self._size > self._max_capture:
            self.overflow = True
            self.body.clear()
        else:
            self.body.append(body)

    def on_message_complete(self) -> None:
        if self.status < 200:
            # 100 and 103 announce the response, they are not it.
            self.head_done = self._sized = False
            self.headers, self.reason = [], b""
        elif not self.done:
            self._finish()

    def _finish(self) -> None:
        # llhttp does not know of HEAD: it would take the next response for this one's body.
        self.done, self.keep_alive = True, self._parser.should_keep_alive() and not self._head_only
