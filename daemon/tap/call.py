"""One call: to the engine, back to the agent byte for byte, and a copy to the spool when it is over.

    agent bytes -> Agent -> Call -> EngineConnection -> engine
    agent      <-  Agent <- Call [veil] <- ReplyParser <- engine bytes

A response goes on piece by piece as it comes in, so a stream stays a stream. The copy is made after the last byte has
gone out. When the agent leaves, the engine's connection is closed, which ends the generation. Whoever reads slowly
slows down the other side: nothing but the socket buffers and one piece lies in between.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from actors.messages.dialects import dialect_at
from daemon.tap.admission import Visitor
from daemon.tap.capture import Capture, Plan, RecordIds
from daemon.tap.errors import Refused, UpstreamBroke, UpstreamUnreachable
from daemon.tap.http import chunk, refusal_bytes
from daemon.tap.metrics import Counts
from daemon.tap.recorder import Recorder
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Held, Request, request_bytes
from daemon.tap.response_filter import Hidden, ResponseFilter
from daemon.tap.router import Router
from daemon.tap.settings import TapSettings
from daemon.tap.upstream import EngineConnection, Upstream

CONNECT_SECONDS = 5.0
"""Until the engine's socket accepts."""
IDLE_SECONDS = 300.0
"""Between two pieces of a response, also when it is the agent that does not read."""
MAX_CAPTURE_BYTES = 16 << 20
"""Of a request or a response in a record. A larger one passes all the same; its record comes without it."""

log = structlog.get_logger(__name__)


class TapContext:
    """What all calls share."""

    def __init__(
        self,
        settings: TapSettings,
        router: Router,
        capture: Capture,
        recorder: Recorder,
        counts: Counts,
        held: Held,
    ) -> None:
        self.settings, self.router, self.capture = settings, router, capture
        self.recorder, self.counts, self.held = recorder, counts, held
        self.clock: Callable[[], float] = time.time
        self.nothing = ReplyParser()
        """The reply of a call that has not reached an engine."""
        self.record_ids = RecordIds()
        self._hidden: dict[tuple[str, ...], Hidden] = {}

    def hidden(self, added: tuple[str, ...]) -> Hidden:
        """How the fields of an answer are found that `added` has asked for."""
        found = self._hidden.get(added)
        if found is None:
            found = self._hidden[added] = Hidden(added)
        return found


class Client(Protocol):
    """The agent's side, as a call sees it."""

    def send(self, data: bytes) -> None: ...
    def within(self, seconds: float, phase: str) -> None: ...
    def call_ended(self, go_on: bool) -> None: ...
    def hear(self, listen: bool) -> None: ...


class Call:
    """One request that the engine answers."""

    __slots__ = (
        "_busy",
        "_client",
        "_closing",
        "_context",
        "_copy",
        "_copy_size",
        "_dial",
        "_engine",
        "_filter",
        "_filtered_stream",
        "_head",
        "_over",
        "_plan",
        "_reached",
        "_reply",
        "_request",
        "_retried",
        "_sent",
        "_tried",
        "_upstream",
        "_visitor",
    )  # fmt: skip

    def __init__(self, context: TapContext, client: Client, request: Request, visitor: Visitor, closing: bool) -> None:
        """
        Args:
            closing: this is the last answer on the agent's connection, and the agent should be told.
        """
        self._context, self._client, self._request, self._visitor = context, client, request, visitor
        self._closing = closing
        self._plan: Plan = context.capture.plan(request, visitor)
        self._engine: EngineConnection | None = None
        self._dial: asyncio.Task[None] | None = None
        self._upstream: Upstream = context.router.choose(request)
        self._tried: list[Upstream] = []
        self._retried = self._over = self._sent = self._reached = False
        self._busy = 0
        """Nanoseconds of our own work on it."""
        self._filter = ResponseFilter(context.hidden(self._plan.added)) if self._plan.added else None
        self._filtered_stream = False
        self._head: list[bytes] = []
        """Bytes of the response until its head is whole, if there is a veil."""
        self._copy: list[bytes] | None = []
        self._copy_size = 0
        self._reply: ReplyParser = context.nothing

    @property
    def upstream(self) -> Upstream:
        return self._upstream

    def begin(self) -> None:
        self._context.counts.in_flight += 1
        self._upstream.in_flight += 1
        # An upload cannot be sent a second time, so it does not go over a connection that may be stale.
        engine = self._upstream.take() if self._request.upload is None else None
        if engine is not None:
            self._converse(engine)
        else:
            self._call_up()

    def _call_up(self) -> None:
        self._client.within(CONNECT_SECONDS, "connect")
        if self._request.upload is not None:
            # Until somebody takes it, the rest of the body waits in the client.
            self._client.hear(False)
        self._dial = asyncio.get_running_loop().create_task(self._dialled())

    async def _dialled(self) -> None:
        """Connect, to another healthy engine if this one is away: nothing has been sent yet."""
        while True:
            try:
                engine = await self._upstream.dial()
            except UpstreamUnreachable as error:
                self._tell(True)
                self._tried.append(self._upstream)
                other = self._context.router.other(self._tried)
                if other is None:
                    self._dial = None
                    self._fail("upstream_down", str(error))
                    return
                self._context.counts.errors["rerouted"] += 1
                self._upstream.in_flight -= 1
                self._upstream = other
                other.in_flight += 1
                continue
            self._dial = None
            if self._over:
                engine.drop()
            else:
                self._converse(engine)
            return

    def _converse(self, engine: EngineConnection) -> None:
        began = time.perf_counter_ns()
        request, upload = self._request, self._request.upload
        self._engine, engine.caller, self._reply = engine, self, engine.reply
        self._reached = True
        engine.reply.begin(
            head_only=request.head.method == b"HEAD",
            max_capture_bytes=MAX_CAPTURE_BYTES if self._plan.keep else 0,
        )
        self._client.within(self._context.settings.first_byte_seconds, "first byte of the response")
        plan = self._plan
        engine.transport.write(request_bytes(request, self._upstream.authority, plan.body, dropped=plan.dropped))
        if upload is not None:
            self._client.hear(True)
            upload.listener = self._pass_up
            self._pass_up()
        self._busy += time.perf_counter_ns() - began

    def _pass_up(self) -> None:
        upload = self._request.upload
        if upload is None or self._over or self._engine is None:
            return
        data = upload.take()
        if data:
            self._engine.transport.write(data if upload.length is not None else chunk(data))
            self._keep_copy(data)
        if upload.refusal is not None:
            self._fail("client_broke", str(upload.refusal))
        elif upload.done:
            upload.listener = None
            if upload.length is None:
                self._engine.transport.write(b"0\r\n\r\n")

    def _keep_copy(self, data: bytes) -> None:
        if self._copy is None:
            return
        context = self._context
        small = self._copy_size + len(data) <= MAX_CAPTURE_BYTES
        if small and self._plan.keep and context.held.take(len(data)):
            self._copy_size += len(data)
            self._copy.append(data)
        else:
            self._forget_copy()

    def _forget_copy(self) -> None:
        self._context.held.give(self._copy_size)
        self._copy, self._copy_size = None, 0

    # The engine's side.

    def on_reply(self, data: bytes) -> None:
        began = time.perf_counter_ns()
        reply = self._reply
        try:
            reply.feed(data)
            if self._filter is not None:
                data = self._filtered(data, self._filter)
        except UpstreamBroke as error:
            self._fail("upstream_broke", str(error))
            return
        if data:
            self._pass_on(data)
        self._busy += time.perf_counter_ns() - began
        if reply.done:
            self._complete()
        else:
            self._client.within(IDLE_SECONDS, "the rest of the response")

    def on_engine_lost(self, error: Exception | None) -> None:
        engine, self._engine = self._engine, None
        if self._reply.eof():
            if self._filter is not None:
                rest = self._closing_filter(self._filter)
                if rest:
                    self._pass_on(rest)
            self._complete()
            return
        stale = engine is not None and engine.used and not self._reply.started and not self._retried
        if stale and self._request.upload is None:
            # The engine may have closed a connection of the pool a moment ago. Only that is tried again, once.
            self._retried = True
            self._context.counts.stale += 1
            self._call_up()
            return
        detail = f"its connection broke: {error}" if error else "it closed before the response was whole"
        self._fail("upstream_broke", detail)

    def on_engine_full(self, full: bool) -> None:
        if self._request.upload is not None:
            self._client.hear(not full)

    # The agent's side.

    def abandon(self) -> None:
        self._end("client_left", "")

    def late(self, phase: str) -> None:
        self._fail("timeout", phase)

    def client_full(self, full: bool) -> None:
        if self._engine is not None:
            transport = self._engine.transport
            (transport.pause_reading if full else transport.resume_reading)()

    # The way out.

    def _filtered(self, data: bytes, response_filter: ResponseFilter) -> bytes:
        """What goes on for `data`, which the reply has read."""
        reply = self._reply
        out = b""
        if not self._sent:
            self._head.append(data)
            if not reply.head_done:
                return b""
            kind = reply.head.content_type.lower()
            self._filtered_stream = kind.startswith("text/event-stream")
            veilable = reply.head.status == 200 and not reply.head.content_encoding
            if not veilable or not (self._filtered_stream or kind.startswith("application/json")):
                # An error, or something unknown: there is nothing to hide.
                self._filter = None
                return b"".join(self._head)
            self._head.clear()
            if self._filtered_stream:
                out = reply.head.own() + b"Transfer-Encoding: chunked\r\n\r\n"
        body = reply.fresh
        if not self._filtered_stream:
            response_filter.hold(body)
            return self._closing_filter(response_filter) if reply.done else b""
        # The `Connection: close` of a drain must go into the head, so the head is sent with the first events.
        shown = response_filter.stream(body)
        if shown:
            out += chunk(shown)
        return out + self._closing_filter(response_filter) if reply.done else out

    def _closing_filter(self, response_filter: ResponseFilter) -> bytes:
        if self._filtered_stream:
            rest = response_filter.rest()
            return (chunk(rest) if rest else b"") + b"0\r\n\r\n"
        body = response_filter.whole()
        return b"%bContent-Length: %d\r\n\r\n%b" % (self._reply.head.own(), len(body), body)

    def _pass_on(self, data: bytes) -> None:
        if self._closing and not self._sent:
            line, end, rest = data.partition(b"\r\n")
            data = line + end + b"Connection: close\r\n" + rest if end else data
        self._sent = True
        self._client.send(data)

    def _complete(self) -> None:
        reply, engine, upload = self._reply, self._engine, self._request.upload
        # An answer to half a request: the rest of it would be read as the next one, on either side.
        whole = upload is None or upload.done
        self._engine = None
        if engine is not None:
            if reply.keep_alive and whole:
                engine.give_back()
            else:
                engine.drop()
        self._end("", "", go_on=(reply.keep_alive or self._filter is not None) and whole)

    def _fail(self, problem: str, detail: str) -> None:
        self._end(problem, detail)

    def _end(self, problem: str, detail: str, *, go_on: bool = False) -> None:
        if self._over:
            return
        self._over = True
        if self._dial is not None:
            self._dial.cancel()
        if self._engine is not None:
            self._engine.drop()
            self._engine = None
        upload = self._request.upload
        if upload is not None:
            upload.listener, upload.over = None, True
        refusal = None if self._sent or problem == "client_left" else _refusal(problem, detail)
        if problem == "client_broke" and not self._sent and upload is not None:
            refusal = upload.refusal
        self._settle(problem, refusal)
        if refusal is not None:
            head_only = self._request.method == b"HEAD"
            whole = upload is None or upload.done
            self._client.send(refusal_bytes(refusal, close=self._closing or not whole, head_only=head_only))
            go_on = whole
        self._client.call_ended(go_on)

    def _settle(self, problem: str, refusal: Refused | None) -> None:
        """Count the call and hand its record to the recorder; nothing in here may stop an answer."""
        context, upstream = self._context, self._upstream
        counts, reply, request = context.counts, self._reply, self._request
        counts.in_flight -= 1
        upstream.in_flight -= 1
        status = refusal.status if refusal else reply.head.status if self._sent else 0
        counts.requests["engine", status] += 1
        if problem:
            counts.errors[problem] += 1
        if (problem or upstream.said_down) and problem != "client_left":
            self._tell(problem == "upstream_down")
        if not problem:
            counts.observe(self._busy)
        if context.router.many:
            # Also when the agent left: many do so at the last event, before the end of the body.
            context.router.learn(b"".join(reply.body), upstream)
        if not self._plan.keep or not self._reached:
            self._forget_copy()
            return
        try:
            body = request.body if request.upload is None else None if self._copy is None else b"".join(self._copy)
            record = context.capture.record(
                request,
                self._visitor,
                self._plan,
                reply,
                record_id=context.record_ids.next(),
                engine=upstream.name,
                body=body,
                status=status,
                finished=context.clock(),
                problem=problem,
            )
            counts.captured += context.recorder.offer(record)
        except Exception:
            # The copy may fail in any way; the agent's answer does not depend on it.
            counts.errors["capture"] += 1
            # Not the path itself, which a stranger writes.
            log.exception("capture_failed", dialect=dialect_at(request.path.decode("latin-1")) or "other")
        self._forget_copy()

    def _tell(self, down: bool) -> None:
        upstream = self._upstream
        if down != upstream.said_down:
            upstream.said_down = down
            where = upstream.authority.decode()
            (log.error if down else log.info)("upstream_down" if down else "upstream_back", upstream=where)


def _refusal(problem: str, detail: str) -> Refused | None:
    """What the client is told if it has got nothing of the engine's answer."""
    if problem == "upstream_down":
        return Refused(502, "upstream_down", f"the engine cannot be reached ({detail}); try again later")
    if problem == "upstream_broke":
        return Refused(502, "upstream_broke", f"no answer from the engine: {detail}")
    if problem == "timeout":
        return Refused(504, "upstream_timeout", f"the engine took too long: {detail}")
    return None
