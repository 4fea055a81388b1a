"""The agents' port, and the mirror's: who answers their requests, and with what.

    agents   feedback is taken here, everything else is the engine's, through a `Call`
    mirror   a proxy sends copies of requests here and does not wait for an answer

One call: to the engine, back to the agent byte for byte, and a copy to the spool when it is over.

    agent bytes -> AgentConnection -> Call -> EngineConnection -> engine
    agent      <-  AgentConnection <- Call [HiddenAnswer] <- ReplyParser <- engine bytes

A response goes on piece by piece as it comes in, so a stream stays a stream. The copy is made after the last byte has
gone out. When the agent leaves, the engine's connection is closed, which ends the generation. Whoever reads slowly
slows down the other side: nothing but the socket buffers and one piece lies in between.

    CALLING     no engine has the request yet
    ASKED       one has, or had; the agent has not seen a byte of an answer
    ANSWERING   it has
    OVER
"""

import asyncio
import random
import time
from typing import Literal

import structlog

from actors.messages import Exchange
from actors.messages.dialects import dialect_at
from daemon.tap import capture
from daemon.tap.admission import Admission, Visitor
from daemon.tap.agent import AgentConnection
from daemon.tap.body_budget import BodyBudget
from daemon.tap.errors import Refused, UpstreamBroke
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import refusal_bytes
from daemon.tap.metrics import Counts
from daemon.tap.paths import FEEDBACK, check_path, is_call
from daemon.tap.recorder import Recorder
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Head, Request, request_bytes
from daemon.tap.router import Router
from daemon.tap.token_fields import HiddenAnswer, asked
from daemon.tap.upstream import EngineConnection, Upstream

_FEEDBACK_SECONDS = 10.0
"""Until feedback is on disk; after that its sender is told to send it again."""
CONNECT_SECONDS = 5.0
"""Until the engine's socket accepts."""
IDLE_SECONDS = 300.0
"""Between two pieces of a response, also when it is the agent that does not read."""

_NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"

log = structlog.get_logger(__name__)


class Proxy:
    """Answers requests; what all calls share."""

    def __init__(
        self,
        router: Router,
        recorder: Recorder,
        door: Admission,
        counts: Counts,
        *,
        tokens: bool,
        first_byte_seconds: float,
    ) -> None:
        """
        Args:
            tokens: ask for token ids where the agent did not, and hide them from it.
            first_byte_seconds: that an engine may take to the first byte of an answer.
        """
        self.router, self._recorder, self.counts, self.rng = router, recorder, counts, random.Random()
        self.tokens, self.first_byte_seconds = tokens, first_byte_seconds
        self.copies = BodyBudget()
        """What is held of answers that are under way."""
        self._door, self._desk = door, FeedbackDesk(recorder, counts, clock=time.time)

    def keep(self, record: Exchange, encoding: str = "") -> None:
        if self._recorder.offer(record, encoding=encoding):
            self.counts.keep(record.tenant, len(record.request) + len(record.response))

    def admit(self, head: Head) -> None:
        """Refuse a request before its body is taken in, as far as its head tells."""
        check_path(head.path)
        self._door.check(head)

    def answer(self, request: Request, agent: AgentConnection) -> None:
        check_path(request.path)
        visitor = self._door.admit(request)
        if request.path.rstrip(b"/") == FEEDBACK:
            agent.within(_FEEDBACK_SECONDS)
            self._desk.take(request, visitor, agent.reply)
            return
        if not visitor.keep:
            self.counts.not_kept[visitor.why_not] += 1
        Call(self, agent, request, visitor).begin()

    def mirror(self, request: Request, agent: AgentConnection) -> None:
        if request.method == b"POST" and request.path.startswith(b"/v1/"):
            # A mirrored call has the agent's own headers, so this is the same rule as on the agents' port.
            visitor = self._door.admit(request)
            if visitor.keep:
                self.keep(capture.mirrored(capture.new_id(self.rng), request, visitor))
            else:
                self.counts.not_kept[visitor.why_not] += 1
        self.counts.requests["mirror", 204] += 1
        agent.reply(_NO_CONTENT)


class Call:
    """One request that the engine answers."""

    def __init__(self, proxy: Proxy, agent: AgentConnection, request: Request, visitor: Visitor) -> None:
        self._proxy, self._agent, self._request, self._visitor = proxy, agent, request, visitor
        self._state: Literal["CALLING", "ASKED", "ANSWERING", "OVER"] = "CALLING"
        self._keep = visitor.keep and request.method == b"POST" and is_call(request.path)
        self._hidden: HiddenAnswer | None = None
        """If fields were asked for that the agent did not want."""
        self._upstream: Upstream = proxy.router.choose(request)
        self._engine: EngineConnection | None = None
        self._dial: asyncio.Task[None] | None = None
        self._reply: ReplyParser = capture.NO_REPLY
        self._busy = 0
        """Nanoseconds of our own work on it."""

    def begin(self) -> None:
        self._agent.call = self
        self._upstream.in_flight += 1
        engine = self._upstream.take()
        if engine is not None:
            self._converse(engine)
        else:
            self._call_up()

    def _call_up(self) -> None:
        self._agent.within(CONNECT_SECONDS)
        self._dial = asyncio.get_running_loop().create_task(self._dialled())

    async def _dialled(self) -> None:
        """Connect, to another healthy engine if this one is away: nothing has been sent yet."""
        tried: list[Upstream] = []
        while True:
            try:
                engine = await self._upstream.dial()
                break
            except OSError as error:
                self._upstream.tell(healthy=False)
                tried.append(self._upstream)
                other = self._proxy.router.other(tried)
                if other is None:
                    self._dial = None
                    self._end("upstream_down", f"{self._upstream.authority.decode()}: {error}")
                    return
                self._proxy.counts.errors["rerouted"] += 1
                self._upstream.in_flight -= 1
                self._upstream = other
                other.in_flight += 1
        self._dial = None
        self._converse(engine)

    def _converse(self, engine: EngineConnection) -> None:
        began = time.perf_counter_ns()
        request, proxy = self._request, self._proxy
        self._state = "ASKED"
        self._engine, engine.call, self._reply = engine, self, engine.reply
        # The answers to calls that are not kept tell where their conversation is as well.
        wanted = self._keep or proxy.router.many
        engine.reply.begin(
            head_only=request.method == b"HEAD",
            max_capture_bytes=capture.MAX_CAPTURE_BYTES if wanted else 0,
            copies=proxy.copies,
        )
        self._agent.within(proxy.first_byte_seconds)
        body, added = asked(request, kept=self._keep) if proxy.tokens else (request.body, ())
        without = (b"authorization",) if self._visitor.strip_authorization else ()
        if added:
            self._hidden = HiddenAnswer(added)
            # A compressed answer could not be rewritten.
            without = (*without, b"accept-encoding")
        engine.transport.write(request_bytes(request, self._upstream.authority, body, without))
        self._busy += time.perf_counter_ns() - began

    # The engine's side.

    def on_reply(self, data: bytes) -> None:
        began = time.perf_counter_ns()
        reply = self._reply
        try:
            reply.feed(data)
            if self._hidden is not None:
                data = self._hidden.shown(data, reply)
        except UpstreamBroke as error:
            self._end("upstream_broke", str(error))
            return
        reply.fresh = b""  # it would stay in memory for as long as the agent does not read
        if data:
            self._pass_on(data)
        self._busy += time.perf_counter_ns() - began
        if reply.done:
            self._complete()
        else:
            self._agent.within(IDLE_SECONDS)

    def on_engine_lost(self, error: Exception | None) -> None:
        engine, self._engine = self._engine, None
        if self._reply.eof():
            rest = self._hidden.ending(self._reply) if self._hidden is not None else b""
            if rest:
                self._pass_on(rest)
            self._complete()
        elif engine is not None and engine.used and not self._reply.received:
            # The engine may have closed a connection of the pool a moment ago. Only that is tried again, and on a
            # new connection, so once.
            self._proxy.counts.stale += 1
            self._call_up()
        else:
            detail = f"its connection broke: {error}" if error else "it closed before the response was whole"
            self._end("upstream_broke", detail)

    # The agent's side.

    def abandon(self) -> None:
        self._end("client_left")

    def late(self) -> None:
        awaited = "connect" if self._dial is not None else "first byte of the response"
        self._end("timeout", "the rest of the response" if self._reply.received else awaited)

    def client_full(self, full: bool) -> None:
        if self._engine is not None:
            transport = self._engine.transport
            (transport.pause_reading if full else transport.resume_reading)()

    # The way out.

    def _pass_on(self, data: bytes) -> None:
        if self._state == "ASKED":
            self._state = "ANSWERING"
            if self._agent.closing:
                # The last answer on its connection, and the agent is told.
                line, end, rest = data.partition(b"\r\n")
                data = line + end + b"Connection: close\r\n" + rest if end else data
        self._agent.send(data)

    def _complete(self) -> None:
        if self._engine is not None and self._reply.keep_alive:
            self._engine.give_back()
            self._engine = None
        self._end(go_on=self._reply.keep_alive or (self._hidden is not None and self._hidden.framed))

    def _end(self, problem: str = "", detail: str = "", *, go_on: bool = False) -> None:
        state, self._state = self._state, "OVER"
        if state == "OVER":
            return
        if self._dial is not None:
            self._dial.cancel()
        if self._engine is not None:
            self._engine.drop()
            self._engine = None
        refusal = None
        if problem in _REFUSALS and state != "ANSWERING":
            http_status, code, message = _REFUSALS[problem]
            refusal = Refused(http_status, code, message.format(detail))
        status = refusal.status if refusal else self._reply.head.status if state == "ANSWERING" else 0
        self._count(problem, status)
        if state != "CALLING":
            if self._keep:
                self._record(problem, status)
            self._reply.drop_copy()
        if refusal is not None:
            head_only = self._request.method == b"HEAD"
            self._agent.send(refusal_bytes(refusal, close=self._agent.closing, head_only=head_only))
        self._agent.answered(go_on or refusal is not None)

    def _count(self, problem: str, status: int) -> None:
        proxy, upstream = self._proxy, self._upstream
        upstream.in_flight -= 1
        proxy.counts.requests["engine", status] += 1
        if problem:
            proxy.counts.errors[problem] += 1
        else:
            proxy.counts.observe(self._busy)
        if proxy.router.many:
            # Also when the agent left: many do so at the last event, before the end of the body.
            proxy.router.learn(b"".join(self._reply.body), upstream)
        elif self._reply.received:
            upstream.tell(healthy=True)

    def _record(self, problem: str, status: int) -> None:
        """Hand the copy to the recorder; nothing in here may stop an answer."""
        proxy = self._proxy
        try:
            record = capture.record(
                capture.new_id(proxy.rng),
                self._request,
                self._visitor,
                self._reply,
                engine=self._upstream.name,
                status=status,
                finished=time.time(),
                problem=problem,
            )
            proxy.keep(record, self._reply.head.content_encoding)
        except Exception:
            # The copy may fail in any way; the agent's answer does not depend on it.
            proxy.counts.errors["capture"] += 1
            # Not the path itself, which a stranger writes.
            log.exception("capture_failed", dialect=dialect_at(self._request.path.decode("latin-1")) or "other")


_REFUSALS = {
    "upstream_down": (502, "upstream_down", "the engine cannot be reached ({}); try again later"),
    "upstream_broke": (502, "upstream_broke", "no answer from the engine: {}"),
    "timeout": (504, "upstream_timeout", "the engine took too long: {}"),
}
"""What the client is told, by problem, if it has got nothing of the engine's answer."""
