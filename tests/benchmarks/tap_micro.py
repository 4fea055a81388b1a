"""What one call costs in the tap's own Python, without sockets: bytes in at both ends, bytes out to a list.

    python -m tests.benchmarks.tap_micro [--calls 50] [--rounds 200] [--json FILE]

Sockets, kernel and event loop are left out, so the figures hold on a busy machine too: each is the smallest mean of its
rounds, in microseconds of processor time. The request is what the load generator sends, the answers are the compiled
engine's: whole, and a stream also event by event, 49 of them.
"""

import contextlib
import gc
import random
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from daemon.tap.admission import Admission, DoorSettings
from daemon.tap.agent import Agent
from daemon.tap.call import TapContext
from daemon.tap.capture import Capture
from daemon.tap.feedback import FeedbackDesk
from daemon.tap.http import RequestParser
from daemon.tap.metrics import Counts
from daemon.tap.recorder import Recorder
from daemon.tap.recorder_wire import Order
from daemon.tap.request import Held
from daemon.tap.router import Router
from daemon.tap.routes import EngineRoute
from daemon.tap.settings import Address, TapSettings
from daemon.tap.upstream import EngineConnection, Upstream
from tests.benchmarks import report
from tests.benchmarks.native import Native
from tests.benchmarks.tap import BUILD, bodies
from tests.benchmarks.tap_figures import CAPTURE, IDS, PLAIN, STREAM

_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\nUser-Agent: load/1\r\n"
    b"Content-Type: application/json\r\nAuthorization: Bearer sk-bench\r\nContent-Length: %d\r\n\r\n"
)
_EVENT = b"\n\n\r\n"
_MEMORY = 1 << 40
_ASK = b',"logprobs":true,"return_token_ids":true,"return_weight_versions":true}'


class Wire:
    """A transport that keeps nothing."""

    def __init__(self) -> None:
        self.sent = 0

    def write(self, data: bytes) -> None:
        self.sent += len(data)

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int) -> None:
        pass


class Rig:
    """One agent's connection, the tap's parts behind it, and one connection to an engine."""

    def __init__(self, *, tokens: bool) -> None:
        settings, counts, upstream = TapSettings(), Counts(), _upstream()
        order = Order(directory="", memory_bytes=0, disk_bytes=0)
        # It has no process and nowhere to send: records wait in it, until the rig is thrown away.
        recorder = Recorder(order, memory_bytes=_MEMORY, silence_seconds=1.0, rng=random.Random(0))
        capture = Capture(tokens=tokens)
        context = TapContext(settings, Router([upstream]), capture, recorder, counts, Held())
        door = Admission(DoorSettings(), clock=time.time)
        route = EngineRoute(context, door, FeedbackDesk(recorder, counts, clock=time.time))
        parser = RequestParser(max_header_bytes=65_536, max_body_bytes=1 << 26, hold=lambda _: 1 << 23, clock=time.time)
        self.counts, self.to_agent, self.to_engine = counts, Wire(), Wire()
        self.agent = Agent(route, parser, set(), counts, request_seconds=1e6, keep_alive_seconds=1e6, max_connections=1)
        self.engine = EngineConnection(upstream)
        self.agent.connection_made(cast(Any, self.to_agent))
        self.engine.connection_made(cast(Any, self.to_engine))
        upstream.keep(self.engine)

    def call(self, request: bytes, answer: list[bytes]) -> None:
        self.agent.data_received(request)
        for piece in answer:
            self.engine.data_received(piece)


def cost(request: bytes, answer: list[bytes], *, tokens: bool, calls: int) -> float:
    """Microseconds of a call whose answer comes in these pieces."""
    rig = Rig(tokens=tokens)
    rig.call(request, answer)
    gc.collect()
    began = time.process_time()
    for _ in range(calls):
        rig.call(request, answer)
    spent = time.process_time() - began
    assert rig.counts.captured == calls + 1, rig.counts.errors
    assert rig.counts.requests == {("engine", 200): calls + 1}
    return spent / calls * 1e6


def exchanges() -> Iterator[tuple[str, bool, bytes, list[bytes]]]:
    """(what it is called, whether ids are asked for, the agent's bytes, the engine's)"""
    with tempfile.TemporaryDirectory() as name, Native(BUILD / "native").engine() as port:
        for measure, path in bodies(Path(name), random.Random(0)).items():
            if measure in (PLAIN, STREAM):
                body = path.read_bytes()
                for tokens in (False, True):
                    asked = body[:-1] + _ASK if tokens else body
                    request, answer = _HEAD % len(body) + body, _answer(port, _HEAD % len(asked) + asked)
                    if measure is STREAM:
                        yield "stream at once", tokens, request, [answer]
                        *events, end = answer.split(_EVENT)
                        yield "event by event", tokens, request, [*(one + _EVENT for one in events), end]
                    else:
                        yield "plain", tokens, request, [answer]


def _answer(port: int, request: bytes) -> bytes:
    """What the engine says to `request`, until it is silent."""
    parts: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port)) as link, contextlib.suppress(TimeoutError):
        link.sendall(request)
        link.settimeout(0.3)
        while data := link.recv(1 << 20):
            parts.append(data)
    return b"".join(parts)


def _upstream() -> Upstream:
    address = Address("127.0.0.1", 8000)
    return Upstream("serving", address, weight=1.0, tls=None, clock=lambda: 0.0)


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument(
        "--calls", type=int, default=50, help="in a round (50); records are kept, and more would cost page faults"
    )
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    figures: dict[str, float] = {}
    gc.freeze()
    gc.set_threshold(20_000)
    cases = list(exchanges())
    for _ in range(options.rounds):
        for kind, tokens, request, answer in cases:
            name = f"{kind}, {IDS if tokens else CAPTURE}"
            spent = cost(request, answer, tokens=tokens, calls=options.calls)
            figures[name] = min(spent, figures.get(name, spent))
    for name, spent in figures.items():
        print(f"{name:32} {spent:6.1f} us")
    report.write(options.json, "tap_micro", figures)


if __name__ == "__main__":
    main()
