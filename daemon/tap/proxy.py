"""The agents' port, and the mirror's: who answers their requests, and with what.

agents   feedback is taken here, everything else is the engine's, through a `Call`
mirror   a proxy sends copies of requests here and does not wait for an answer
"""

import time
from collections.abc import Callable

from daemon.tap import capture
from daemon.tap.admission import Admission
from daemon.tap.agent import AgentConnection
from daemon.tap.call import Call
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import response_bytes
from daemon.tap.metrics import Counts
from daemon.tap.paths import FEEDBACK, check_path
from daemon.tap.recorder import Recorder
from daemon.tap.request import Head, Request
from daemon.tap.router import Router

_FEEDBACK_SECONDS = 10.0
"""Until feedback is on disk; after that its sender is told to send it again."""


class Proxy:
    """What all calls share."""

    def __init__(
        self,
        router: Router,
        recorder: Recorder,
        door: Admission,
        counts: Counts,
        *,
        tokens: bool,
        first_byte_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            tokens: ask for token ids where the agent did not, and hide them from it.
            first_byte_seconds: that an engine may take to the first byte of an answer.
            clock: unix seconds.
        """
        self.router, self.recorder, self.counts, self.clock = router, recorder, counts, clock
        self.tokens, self.first_byte_seconds = tokens, first_byte_seconds
        self.record_ids = capture.RecordIds()
        self._door, self._desk = door, FeedbackDesk(recorder, counts, clock=clock)

    def admit(self, head: Head) -> None:
        """Refuse a request before its body is taken in, as far as its head tells."""
        check_path(head.path)
        self._door.check(head)

    def answer(self, request: Request, agent: AgentConnection) -> Call | None:
        check_path(request.path)
        visitor = self._door.admit(request)
        if request.path.rstrip(b"/") == FEEDBACK:
            agent.within(_FEEDBACK_SECONDS, "feedback")
            self._desk.take(request, visitor, agent.reply)
            return None
        if not visitor.keep:
            self.counts.not_kept[visitor.why_not] += 1
        return Call(self, agent, request, visitor)

    def mirror(self, request: Request, agent: AgentConnection) -> None:
        if request.method == b"POST" and request.path.startswith(b"/v1/"):
            # A mirrored call has the agent's own headers, so this is the same rule as on the agents' port.
            visitor = self._door.admit(request)
            if visitor.keep:
                record = capture.mirrored(self.record_ids.next(), request, visitor)
                if self.recorder.offer(record):
                    self.counts.keep(record.tenant, len(record.request))
            else:
                self.counts.not_kept[visitor.why_not] += 1
        self.counts.requests["mirror", 204] += 1
        agent.reply(_NOTHING)


_NOTHING = response_bytes(204, b"").replace(b"Content-Type: application/json\r\nContent-Length: 0\r\n", b"")
