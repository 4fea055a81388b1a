"""One agent's connection: requests in, one after the other to whoever answers them.

It reads while it answers, so that it notices at once when the agent leaves; what comes early waits. There is no task
and no timer of its own: bytes call it, and `late` is called when what it waits for is overdue.

    ASKING      reads the next request, or waits for it
    ANSWERING   a call, or somebody in the tap, answers the request
    ENDING      the last word has been said; what still comes in is thrown away
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Literal, Protocol, cast

import structlog

from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, no_room, refusal_bytes
from daemon.tap.metrics import Counts
from daemon.tap.request import Request

REQUEST_SECONDS = 120.0
"""From a request's first byte to its last, and a second more for each `_BYTES_A_SECOND` that come."""
KEEP_ALIVE_SECONDS = 300.0
"""How long an idle connection is kept."""
_BYTES_A_SECOND = 65_536
_EARLY = 65_536
"""Bytes that are read while a request is being answered, as far as the budget for bodies has room; more of them wait in
the socket."""
_FIRST_SECONDS = 1.0
"""While draining, for the first request of a connection that is open already."""
_LINGER_SECONDS = 2.0
_KEPT_SECONDS = 5.0
"""An agent's next request often follows its last answer: for so long its connection is not closed to make room."""

log = structlog.get_logger(__name__)


class Answering(Protocol):
    """What answers a request, if that is not the tap itself: it sends what it has, and tells when it is over."""

    def abandon(self) -> None: ...
    def late(self) -> None: ...
    def client_full(self, full: bool) -> None: ...


class AgentConnection(asyncio.Protocol):
    """Serves one connection to its end."""

    def __init__(
        self,
        answer: "Callable[[Request, AgentConnection], object]",
        parser: RequestParser,
        agents: "set[AgentConnection]",
        counts: Counts,
        *,
        max_connections: int,
    ) -> None:
        """`answer` answers a request by `reply`, at once or later, or by what sets `call`, or refuses. `agents` are all
        open connections, this one among them for as long as it is open.
        """
        self._answer, self._parser, self._agents, self._counts = answer, parser, agents, counts
        self._max_connections = max_connections
        self._transport: asyncio.Transport
        self._state: Literal["ASKING", "ANSWERING", "ENDING"] = "ASKING"
        self._request: Request | None = None
        """The one that is being answered."""
        self.call: Answering | None = None
        """What answers it, if that is not the tap itself."""
        self._early = b""
        self._refusal: Refused | None = None
        """What cannot be read is refused behind the requests before it; nothing more is read."""
        self._full = False
        """The agent does not read what it was answered: no other answer is begun."""
        self.closing = False
        """The next answer is the last one."""
        self.due = math.inf
        """When what it waits for is overdue."""
        self.served = False
        """It was answered something, and not by a refusal."""
        self.since = time.monotonic()
        """When it began to wait for its agent."""
        parser.on_room = self._room

    # Bytes and the socket's state.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # What waits for an agent stays with its engine, but for the piece that did not go out whole: a loop may hold
        # on to all of a piece until the last byte of it has gone. (Not 0: over TLS, uvloop pauses at the limit itself.)
        self._transport.set_write_buffer_limits(1)
        if len(self._agents) >= self._max_connections and not self._make_room():
            self._counts.errors["too_many_connections"] += 1
            self._refuse(Refused(503, "too_many_connections", "try again later"))
            # Nobody looks after the deadlines of one that is none of the agents.
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)
            return
        self._agents.add(self)
        self._counts.connections += 1
        self.within(KEEP_ALIVE_SECONDS)

    def data_received(self, data: bytes) -> None:
        if self._state == "ENDING" or self._refusal is not None:
            return
        if self._state == "ANSWERING" or self._full or self._early or self._parser.requests:
            if not self._parser.budget.take(len(data)):
                self._refusal = no_room()
                return
            self._early += data
            if len(self._early) > _EARLY:
                self._transport.pause_reading()
            return
        request = self._parser.again(data)
        if request is not None:
            self._begin(request)
        else:
            self._feed(data)
            self._next()

    def eof_received(self) -> bool:
        # Half-closed counts as gone, as it does with nginx: there is no telling the two apart.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._agents:
            self._agents.remove(self)
            self._counts.connections -= 1
        if self._request is not None and self.call is None:
            self._counts.errors["client_left"] += 1
        call = self.call
        self._end()
        if call is not None:
            call.abandon()

    def pause_writing(self) -> None:
        self._full = True
        if self.call is not None:
            self.call.client_full(True)

    def resume_writing(self) -> None:
        self._full = False
        if self.call is not None:
            self.call.client_full(False)
        elif not self._transport.is_closing():
            self._next()

    # What a call does with it.

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def within(self, seconds: float) -> None:
        self.due = time.monotonic() + seconds

    def answered(self, go_on: bool) -> None:
        """The answer is whole, or over; the connection may `go_on` behind it."""
        self.call, self.served = None, True
        self._await_next(go_on)

    def reply(self, data: bytes) -> bool:
        """The whole answer to the request, from ourselves; False if the agent has left or was told otherwise."""
        if self._state != "ANSWERING" or self._transport.is_closing():
            return False
        self._transport.write(data)
        self.answered(True)
        return True

    # Its own life.

    def late(self) -> None:
        self.due = math.inf
        if self.call is not None:
            self.call.late()
        elif self._state == "ANSWERING":
            self._refuse(Refused(503, "spool_unavailable", "it cannot be written down now; send it again later"))
        elif self._parser.waits:
            self._refuse(no_room())
        else:
            self._transport.abort()

    def finish(self) -> None:
        """Answer what has arrived, then close."""
        self.closing = True
        if self._state == "ASKING" and not self.served and not self._parser.partial:
            # Accepted a moment ago, its request is on the way: nobody repeats one that he believes was taken.
            self.within(_FIRST_SECONDS)
        else:
            self._next()

    def cut(self) -> None:
        self._transport.abort()

    def _feed(self, data: bytes) -> None:
        """Read on in the request that is on its way."""
        parser, fresh = self._parser, not self._parser.partial
        try:
            parser.feed(data)
        except Refused as refusal:
            self._refusal = refusal
        if fresh or not parser.partial:
            self.within(REQUEST_SECONDS if parser.partial else KEEP_ALIVE_SECONDS)
        self.due += len(data) / _BYTES_A_SECOND
        if parser.waits:
            self._transport.pause_reading()
        self._say_go_on()

    def _room(self) -> None:
        """There is room for the body that waits."""
        if not self._transport.is_closing():
            self._say_go_on()
            self._transport.resume_reading()

    def _say_go_on(self) -> None:
        """Ask for the body of a client that waits for that, if it is the next one to be read and there is room."""
        parser = self._parser
        if self._state != "ASKING" or self._refusal is not None or parser.requests or parser.waits:
            return
        if parser.expects and parser.in_body:
            parser.expects = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _next(self) -> None:
        """Begin with the next request, if there is one and its answer will be read; else close, or read on."""
        if self._state != "ASKING" or self._full:
            return
        parser = self._parser
        if self._early and not parser.requests and self._refusal is None:
            data = self._take_early()
            self._transport.resume_reading()
            self._feed(data)
        if parser.requests:
            self._begin(parser.requests.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal)
        elif self.closing and not parser.partial:
            self._transport.close()

    def _begin(self, request: Request) -> None:
        self._state, self._request = "ANSWERING", request
        self.due = math.inf
        try:
            self._answer(request, self)
        except Refused as refusal:
            self._counts.requests["refused", refusal.status] += 1
            self._transport.write(refusal_bytes(refusal, close=self.closing, head_only=request.method == b"HEAD"))
            self._await_next(True)
        except Exception:
            # One connection's fault must not end the others.
            self._counts.errors["internal"] += 1
            log.exception("connection_failed")
            self._transport.abort()

    def _await_next(self, go_on: bool) -> None:
        """The request has been answered; read on, if its connection may `go_on`."""
        request = self._done_with_request()
        if request is None or self._transport.is_closing():
            return
        if not go_on or not request.head.keep_alive:
            self._linger()
            return
        self._state = "ASKING"
        self.since = time.monotonic()
        self.within(REQUEST_SECONDS if self._parser.partial else KEEP_ALIVE_SECONDS)
        self._say_go_on()
        if self._parser.requests or self._early or self._refusal is not None or self.closing:
            # In a turn of the loop of its own: thousands that are answered at once may come in one piece.
            asyncio.get_running_loop().call_soon(self._next)

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its agent to ask something; whether there was one. Whoever
        only connects, or never ends the head of a request, must not keep others out.
        """
        idle = min((one for one in self._agents if one.idle), key=lambda one: (one.served, one.since), default=None)
        if idle is None:
            return False
        self._counts.errors["idle_connection_closed"] += 1
        self._agents.remove(idle)
        self._counts.connections -= 1
        idle.cut()
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing is being answered or taken in for it, and it was not answered a moment ago."""
        if self._state == "ANSWERING" or self._parser.requests or self._parser.in_body:
            return False
        return not self.served or time.monotonic() - self.since > _KEPT_SECONDS

    def _take_early(self) -> bytes:
        data, self._early = self._early, b""
        self._parser.budget.give(len(data))
        return data

    def _done_with_request(self) -> Request | None:
        request, self._request = self._request, None
        if request is not None:
            self._parser.budget.give(request.held)
        return request

    def _end(self) -> None:
        self._state, self.call = "ENDING", None
        self._take_early()
        self._parser.release()
        self._done_with_request()

    def _refuse(self, refusal: Refused) -> None:
        """Say it, and close."""
        self._counts.requests["refused", refusal.status] += 1
        self._transport.write(refusal_bytes(refusal, close=True))
        self._linger()

    def _linger(self) -> None:
        """Close without losing what was just sent: closing a socket with unread bytes resets it."""
        self._end()
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
            self.within(_LINGER_SECONDS)
        else:
            # TLS has no half-close.
            self._transport.close()
