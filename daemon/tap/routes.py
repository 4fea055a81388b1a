"""Who answers the requests of a listener: the engine (through the tap), or the mirror's desk."""

from daemon.tap.admission import Admission, Visitor
from daemon.tap.agent import Agent
from daemon.tap.call import Call, TapContext
from daemon.tap.capture import CHAT, FEEDBACK, check_path
from daemon.tap.errors import Refused
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import refusal_bytes, response_bytes
from daemon.tap.request import Head, Request

_FEEDBACK_SECONDS = 10.0
"""Until feedback is on disk; after that its sender is told to send it again."""


class EngineRoute:
    """The public port: feedback is taken here, everything else is the engine's."""

    def __init__(self, context: TapContext, door: Admission, desk: FeedbackDesk) -> None:
        self._context, self._door, self._desk = context, door, desk

    def admit(self, head: Head) -> None:
        if head.path != CHAT:
            check_path(head.path)
        self._door.check(head)

    def answer(self, request: Request, agent: Agent) -> Call | None:
        path = request.head.path
        if path != CHAT:
            check_path(path)
        visitor = self._door.admit(request)
        if path.rstrip(b"/") == FEEDBACK:
            self._feedback(request, visitor, agent)
            return None
        if not visitor.keep:
            self._context.counts.not_kept[visitor.why_not] += 1
        return Call(self._context, agent, request, visitor, agent.closing)

    def _feedback(self, request: Request, visitor: Visitor, agent: Agent) -> None:
        self._door.check_own(request.head, visitor.caller)
        if request.upload is not None:
            raise Refused(413, "body_too_large", "feedback is small; this is not")
        data, told = self._desk.answer(request, visitor)
        counts = self._context.counts

        def answer(safe: bool) -> None:
            counts.requests["feedback", 202 if safe else 503] += 1
            counts.feedback["accepted" if safe else "unavailable"] += told
            agent.reply(data if safe else _UNSAFE)

        if not visitor.keep:
            counts.requests["feedback", 202] += 1
            agent.reply(data)
            return
        # Whoever is told that it was taken must find it again, whatever happens to the tap, its recorder or the power.
        agent.within(_FEEDBACK_SECONDS, "feedback")
        self._context.recorder.when_safe(answer)


class MirrorRoute:
    """The mirror's port: a proxy sends copies of requests here and does not wait for an answer."""

    def __init__(self, context: TapContext, door: Admission) -> None:
        self._context, self._door = context, door

    def admit(self, head: Head) -> None:
        self._door.check(head)

    def answer(self, request: Request, agent: Agent) -> Call | None:
        if request.upload is not None:
            raise Refused(413, "body_too_large", "a mirrored request is held whole, and this one is too large")
        counts = self._context.counts
        if request.method == b"POST" and request.path.startswith(b"/v1/"):
            # A mirrored call has the agent's own headers, so this is the same rule as on the agents' port.
            visitor = self._door.admit(request)
            if visitor.keep:
                counts.captured += self._context.recorder.offer(self._context.capture.mirrored(request, visitor))
            else:
                counts.not_kept[visitor.why_not] += 1
        counts.requests["mirror", 204] += 1
        agent.reply(_NOTHING)
        return None


_UNSAFE = refusal_bytes(Refused(503, "spool_unavailable", "feedback cannot be written down now; send it again later"))
_NOTHING = response_bytes(204, b"").replace(b"Content-Type: application/json\r\nContent-Length: 0\r\n", b"")
