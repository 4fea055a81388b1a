"""One call: to the engine, back to the agent byte for byte, and a copy to the spool when it is over.

The response goes on piece by piece as it comes in, so a stream stays a stream. The copy is made after the last byte has
gone out. When the agent leaves, the engine's connection is closed, which ends the generation.
"""

import time
from collections.abc import Callable

import anyio
import structlog
from anyio.abc import ByteStream

from actors.messages import encode
from daemon.tap.capture import FEEDBACK, Capture, Plan, check_path
from daemon.tap.deadlines import Guard, Watch
from daemon.tap.errors import ClientLeft, Refused, UpstreamBroke, UpstreamUnreachable
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import ReplyParser, Request, refusal_bytes, request_bytes
from daemon.tap.metrics import Counts
from daemon.tap.settings import TapSettings
from daemon.tap.spool import SpoolWriter
from daemon.tap.upstream import Upstream, discard

GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
_PIECE = 65_536

log = structlog.get_logger(__name__)


class _Call:
    """What is known of a call under way."""

    __slots__ = ("closing", "first_byte", "reached", "reply", "sent")

    def __init__(self, reply: ReplyParser, closing: bool) -> None:
        self.reply, self.closing = reply, closing
        self.first_byte = 0.0
        self.reached = False
        """The request went to the engine."""
        self.sent = False
        """The client has got a byte."""


class Relay:
    """Answers requests: feedback by itself, everything else by the engine."""

    def __init__(
        self,
        settings: TapSettings,
        upstream: Upstream,
        capture: Capture,
        feedback: FeedbackDesk,
        spool: SpoolWriter,
        counts: Counts,
        watch: Watch,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            clock: unix seconds, for the records.
        """
        self._settings, self._upstream, self._capture, self._feedback = settings, upstream, capture, feedback
        self._spool, self._counts, self._watch, self._clock = spool, counts, watch, clock
        self._upstream_down = False

    async def answer(self, request: Request, client: ByteStream, closing: bool) -> bool:
        """Answer `request`; True if the client's connection can go on.

        Args:
            closing: this is the last answer on the connection, and the client should be told.
        """
        try:
            check_path(request.path)
            if request.path.rstrip(b"/") == FEEDBACK:
                await client.send(self._feedback.answer(request))
                self._counts.requests["feedback", 202] += 1
                return True
        except Refused as refusal:
            self._counts.requests["refused", refusal.status] += 1
            await client.send(refusal_bytes(refusal, close=closing, head_only=request.method == b"HEAD"))
            return True
        return await self._call(request, client, closing)

    async def _call(self, request: Request, client: ByteStream, closing: bool) -> bool:
        plan = self._capture.plan(request)
        self._counts.opted_out += plan.opted_out
        reply = ReplyParser(head_only=request.method == b"HEAD", max_capture_bytes=self._settings.max_capture_bytes)
        call = _Call(reply, closing)
        # What is true if nothing below gets to say otherwise: the connection's scope was cancelled.
        problem, detail = "client_left", ""
        self._counts.in_flight += 1
        try:
            message = request_bytes(request, self._upstream.authority, plan.body)
            with anyio.CancelScope() as scope, self._watch.guard(scope) as guard:
                try:
                    await self._forward(message, call, client, guard)
                    problem = ""
                except UpstreamUnreachable as error:
                    problem, detail = "upstream_down", str(error)
                except UpstreamBroke as error:
                    problem, detail = "upstream_broke", str(error)
                except ClientLeft:
                    problem = "client_left"
            if scope.cancelled_caught:
                problem, detail = "timeout", guard.phase
        finally:
            self._counts.in_flight -= 1
            refusal = None if call.sent else _refusal(problem, detail)
            self._settle(request, plan, call, problem, refusal)
        if refusal is not None:
            await client.send(refusal_bytes(refusal, close=closing, head_only=request.method == b"HEAD"))
            return True
        return not problem and reply.keep_alive

    async def _forward(self, message: bytes, call: _Call, client: ByteStream, guard: Guard) -> None:
        """Send `message` and pass the response on.

        A connection from the pool may have been closed by the engine a moment ago. Only that is tried again, once, and
        only if not one byte of a response has come.
        """
        pooled = self._upstream.take()
        if pooled is not None:
            try:
                return await self._converse(pooled, message, call, client, guard)
            except UpstreamBroke:
                if call.reply.started:
                    raise
                self._counts.stale += 1
        guard.within(self._settings.connect_seconds, "connect")
        stream = await self._upstream.dial()
        return await self._converse(stream, message, call, client, guard)

    async def _converse(
        self, stream: ByteStream, message: bytes, call: _Call, client: ByteStream, guard: Guard
    ) -> None:
        reply, idle = call.reply, self._settings.idle_seconds
        usable = False
        try:
            guard.within(self._settings.first_byte_seconds, "first byte of the response")
            call.reached = True
            try:
                await stream.send(message)
                while not reply.done:
                    data = await stream.receive(_PIECE)
                    if not reply.started:
                        call.first_byte = self._clock()
                    reply.feed(data)
                    guard.within(idle, "the rest of the response")
                    await self._pass_on(data, call, client)
            except anyio.EndOfStream as error:
                if not reply.eof():
                    raise UpstreamBroke("the engine closed before the response was whole") from error
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise UpstreamBroke("the engine's connection broke") from error
            usable = reply.keep_alive
        finally:
            if usable:
                self._upstream.give(stream)
            else:
                await discard(stream)

    async def _pass_on(self, data: bytes, call: _Call, client: ByteStream) -> None:
        if call.closing and not call.sent:
            line, end, rest = data.partition(b"\r\n")
            data = line + end + b"Connection: close\r\n" + rest if end else data
        call.sent = True
        try:
            await client.send(data)
        except GONE as error:
            raise ClientLeft("the agent closed its connection") from error

    def _settle(self, request: Request, plan: Plan, call: _Call, problem: str, refusal: Refused | None) -> None:
        """Count the call and hand its record to the spool; nothing in here may stop an answer."""
        status = refusal.status if refusal else call.reply.status if call.sent else 0
        self._counts.requests["engine", status] += 1
        if problem:
            self._counts.errors[problem] += 1
        self._tell(problem)
        if not plan.keep or not call.reached or problem == "upstream_down":
            return
        try:
            times = (call.first_byte, self._clock())
            record = self._capture.record(request, plan, call.reply, status=status, times=times, problem=problem)
            self._counts.captured += self._spool.offer(bytes.fromhex(record.id), encode(record))
        except Exception:
            # The copy may fail in any way; the agent's answer does not depend on it.
            self._counts.errors["capture"] += 1
            log.exception("capture_failed", path=request.path.decode("latin-1"))

    def _tell(self, problem: str) -> None:
        """One line when the engine goes away, one when it is back."""
        down = problem == "upstream_down"
        if down != self._upstream_down and problem != "client_left":
            self._upstream_down = down
            upstream = self._upstream.authority.decode()
            (log.error if down else log.info)("upstream_down" if down else "upstream_back", upstream=upstream)


def _refusal(problem: str, detail: str) -> Refused | None:
    """What the client is told if it has got nothing of the engine's answer."""
    if problem == "upstream_down":
        return Refused(502, "upstream_down", f"the engine cannot be reached ({detail}); try again later")
    if problem == "upstream_broke":
        return Refused(502, "upstream_broke", f"no answer from the engine: {detail}")
    if problem == "timeout":
        return Refused(504, "upstream_timeout", f"the engine took too long: {detail}")
    return None
