"""One agent's connection: requests in, one after the other to whoever answers them.

It reads all the time, so that it notices at once when the agent leaves; requests that come early wait in order. There
is no task and no timer of its own: bytes call it, and `late` is called when what it waits for is overdue.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol, cast

import structlog

from daemon.tap.call import Call
from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, refusal_bytes
from daemon.tap.metrics import Counts
from daemon.tap.request import Head, Request

REQUEST_SECONDS = 120.0
"""From a request's first byte to its last."""
KEEP_ALIVE_SECONDS = 300.0
"""How long an idle connection is kept."""
_PIPELINED = 16
"""Requests read ahead; more wait in the socket, as do all once one of them is an upload or is held."""
_FIRST_SECONDS = 1.0
"""While draining, for the first request of a connection that is open already."""
_LINGER_SECONDS = 2.0
_KEPT_SECONDS = 5.0
"""An agent's next request often follows its last answer: for so long its connection is not closed to make room."""
_WRITE_BUFFER = 262_144
"""Bytes that wait for an agent before its engine is slowed down."""

log = structlog.get_logger(__name__)


class Route(Protocol):
    """Who answers the requests of a listener."""

    def admit(self, head: Head) -> None:
        """Refuse a request before its body is taken in, as far as its head tells."""
        ...

    def answer(self, request: Request, agent: "Agent") -> Call | None:
        """Answer by `agent.reply`, at once or later, or give the call that will; or refuse."""
        ...


class Agent(asyncio.Protocol):
    """Serves one connection to its end."""

    def __init__(
        self,
        route: Route,
        parser: RequestParser,
        agents: set["Agent"],
        counts: Counts,
        *,
        max_connections: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`agents` are all open connections, this one among them for as long as it is open."""
        self._route, self._parser, self._agents, self._counts = route, parser, agents, counts
        self._max_connections, self._clock = max_connections, clock
        self._transport: asyncio.Transport
        self._call: Call | None = None
        self._waiting = False
        """A request is being answered by something that is no call."""
        self._request: Request | None = None
        """The one that is being answered."""
        self._refusal: Refused | None = None
        self._heard = False
        self._deaf = False
        """What comes in now is thrown away."""
        self._lingering = False
        """The last word has been said."""
        self._paused = False
        self._full = False
        """The agent does not read what it was answered: no other answer is begun."""
        self.closing = False
        """The next answer is the last one."""
        self.due = math.inf
        self.phase = ""
        """What is waited for until `due`."""
        self.served = False
        """It was answered something, and not by a refusal."""
        self.since = clock()
        self._beginning = False

    # Bytes and the socket's state.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        if len(self._agents) >= self._max_connections and not self._make_room():
            self._counts.errors["too_many_connections"] += 1
            self._refuse(Refused(503, "too_many_connections", "try again later"))
            # Nobody looks after the deadlines of one that is none of the agents.
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)
            return
        self._agents.add(self)
        self._counts.connections += 1
        self._await_request()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._heard = True
        parser = self._parser
        if self._request is None and not self._full:
            request = parser.again(data)
            if request is not None:
                self._begin(request)
                return
        fresh = not parser.partial
        try:
            parser.feed(data)
        except Refused as refusal:
            self._refusal, self._deaf = refusal, True
        if self._request is None:
            self._next()
            if self._request is None and parser.partial and fresh:
                self.within(REQUEST_SECONDS, "request")
        if parser.expects and not parser.requests and (self._request is None or parser.uploading) and not self._deaf:
            parser.expects = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        waiting = parser.requests
        ahead = len(waiting) >= _PIPELINED or (waiting and (waiting[-1].upload is not None or waiting[-1].held > 0))
        if ahead and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        # Half-closed counts as gone, as it does with nginx: there is no telling the two apart.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        if self in self._agents:
            self._agents.remove(self)
            self._counts.connections -= 1
        self._parser.release()
        if self._request is not None:
            self._parser.done_with(self._request)
        if self._request is not None and self._call is None:
            self._counts.errors["client_left"] += 1
        if self._call is not None:
            self._call.abandon()

    def pause_writing(self) -> None:
        self._full = True
        if self._call is not None:
            self._call.client_full(True)

    def resume_writing(self) -> None:
        self._full = False
        if self._call is not None:
            self._call.client_full(False)
        elif self._request is None and not self._lingering and not self._transport.is_closing():
            self._unpause()
            self._next()

    # What a call does with it.

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def within(self, seconds: float, phase: str) -> None:
        self.due, self.phase = self._clock() + seconds, phase

    def hear(self, listen: bool) -> None:
        if not self._paused and not self._transport.is_closing():
            (self._transport.resume_reading if listen else self._transport.pause_reading)()

    def call_ended(self, go_on: bool) -> None:
        self._call = None
        self.served = True
        self._answered(go_on)

    def reply(self, data: bytes) -> None:
        """The whole answer to the request, from ourselves; too late if the agent has left or was told otherwise."""
        if self._request is not None and not self._transport.is_closing():
            self._transport.write(data)
            self.served = True
            self._answered(True)

    # Its own life.

    def late(self) -> None:
        self.due = math.inf
        if self._call is not None:
            self._call.late(self.phase)
        elif self._request is not None:
            self._refuse(Refused(503, "spool_unavailable", "it cannot be written down now; send it again later"))
        else:
            self._transport.abort()

    def finish(self) -> None:
        """Answer what has arrived, then close."""
        self.closing = True
        if not self._heard and not self._lingering:
            # Accepted a moment ago, its request is on the way: nobody repeats one that he believes was taken.
            self.within(_FIRST_SECONDS, "request")
        elif self._request is None and not self._lingering:
            self._next()

    def cut(self) -> None:
        self._transport.abort()

    def _answered(self, go_on: bool) -> None:
        request, self._request = self._request, None
        if request is not None:
            self._parser.done_with(request)
        if self._transport.is_closing():
            return
        if not go_on or request is None or not request.head.keep_alive:
            self._linger()
            return
        # Backpressure of this call must not outlive it.
        self._unpause()
        self.since = self._clock()
        self._await_request()
        if self._parser.requests or self._refusal is not None or self.closing:
            self._next()

    def _unpause(self) -> None:
        self._paused = self._full
        (self._transport.pause_reading if self._full else self._transport.resume_reading)()

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
        if self._request is not None or self._parser.requests or self._parser.in_body:
            return False
        return not self.served or self._clock() - self.since > _KEPT_SECONDS

    def _next(self) -> None:
        """Begin with the next request, if there is one and its answer will be read."""
        parser = self._parser
        if self._beginning:
            return  # one that is answered at once leads here again, and thousands of them come in one piece
        self._beginning = True
        while parser.requests and self._request is None and not self._full and not self._lingering:
            self._begin(parser.requests.popleft())
        self._beginning = False
        if self._full or self._request is not None or self._lingering or parser.requests:
            return
        if self._refusal is not None:
            self._counts.requests["refused", self._refusal.status] += 1
            self._refuse(self._refusal)
        elif self.closing and not parser.partial:
            self._transport.close()

    def _begin(self, request: Request) -> None:
        self._request = request
        self.due = math.inf
        try:
            call = self._route.answer(request, self)
        except Refused as refusal:
            self._counts.requests["refused", refusal.status] += 1
            # The body of a refused upload is still coming: there is no next request to be found behind it.
            go_on = request.upload is None or request.upload.done
            close = self.closing or not go_on
            self._transport.write(refusal_bytes(refusal, close=close, head_only=request.method == b"HEAD"))
            self._answered(go_on)
            return
        except Exception:
            # One connection's fault must not end the others.
            self._counts.errors["internal"] += 1
            log.exception("connection_failed")
            self._transport.abort()
            return
        if call is not None:
            self._call = call
            call.begin()

    def _await_request(self) -> None:
        self.within(REQUEST_SECONDS if self._parser.partial else KEEP_ALIVE_SECONDS, "request")

    def _refuse(self, refusal: Refused) -> None:
        self._transport.write(refusal_bytes(refusal, close=True))
        self._linger()

    def _linger(self) -> None:
        """Close without losing what was just sent: closing a socket with unread bytes resets it."""
        self._deaf = self._lingering = True
        self._parser.release()
        if self._request is not None:
            self._parser.done_with(self._request)
        self._request = None
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
            self.within(_LINGER_SECONDS, "close")
        else:
            # TLS has no half-close.
            self._transport.close()
