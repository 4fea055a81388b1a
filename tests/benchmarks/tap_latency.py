"""What the tap adds to a call: the same requests straight to an engine and through the tap, in turn, in one run.

The engine is a bare uvloop protocol with canned answers (1.3 KB of JSON, or a stream of 8 events a
millisecond apart), so that what is
measured is the tap. Capture, token fields and the spool are on. One client, one connection each way, blocking sockets:
latency at low load, not throughput.

    python -m tests.benchmarks.tap_latency --json build/tap_latency.json
"""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from daemon.tap.settings import TapSettings
from daemon.tap.spool_reader import SpoolReader
from tests.benchmarks import report

WARM_UP = 200
EVENTS = 8
PACE = 0.001
"""Seconds between events: an engine that never rests would measure the scheduler of a busy machine."""
MESSAGES = [{"role": "system", "content": "s" * 1500}, {"role": "user", "content": "u" * 500}]


def requests(stream: bool) -> bytes:
    """A chat request of about 2 KB, as an agent sends it."""
    body = json.dumps({"model": "m", "messages": MESSAGES, "stream": stream}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: engine\r\nAccept: application/json\r\nUser-Agent: bench/1\r\n"
        f"Authorization: Bearer none\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def engine(port: int) -> None:
    """The canned engine, in its own process."""
    import asyncio

    import uvloop

    body = json.dumps({"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"content": "x" * 1200}}]}).encode()
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    event = b'data: {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": "token "}}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = b"%x\r\n%s\r\n" % (len(event), event)

    class Answers(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.buffer = cast(asyncio.Transport, transport), b""

        def data_received(self, data: bytes) -> None:
            self.buffer += data
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = int(self.buffer[:end].lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self.buffer) < end + 4 + length:
                return
            streamed = b'"stream": true' in self.buffer
            self.buffer = b""
            if not streamed:
                self.transport.write(plain)
                return
            self.transport.write(head + one)
            self.left = EVENTS - 1
            asyncio.get_running_loop().call_later(PACE, self.more)

        def more(self) -> None:
            self.left -= 1
            self.transport.write(one if self.left else one + b"0\r\n\r\n")
            if self.left and not self.transport.is_closing():
                asyncio.get_running_loop().call_later(PACE, self.more)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", port)
        await server.serve_forever()

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    uvloop.run(main())


def tap(settings: TapSettings) -> None:
    """The tap as it is shipped, in its own process."""
    from daemon.logs import configure
    from daemon.tap.server import main

    configure(level=40)
    main(settings)


class Client:
    """A keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def plain(self, request: bytes) -> float:
        """Seconds from the request to the last byte of the answer."""
        began = time.perf_counter()
        self._socket.sendall(request)
        data = self._socket.recv(65536)
        while len(data) < 1300:
            data += self._socket.recv(65536)
        took = time.perf_counter() - began
        assert data.startswith(b"HTTP/1.1 200"), data[:200]
        return took

    def first_byte(self, request: bytes) -> float:
        """Seconds from the request to the first byte of the stream, which is then read to its end."""
        began = time.perf_counter()
        self._socket.sendall(request)
        data = self._socket.recv(65536)
        took = time.perf_counter() - began
        assert data.startswith(b"HTTP/1.1 200"), data[:200]
        while not data.endswith(b"0\r\n\r\n"):
            data = data[-8:] + self._socket.recv(65536)
        return took

    def close(self) -> None:
        self._socket.close()


def interleaved(measures: list[Callable[[], float]], rounds: int, rng: random.Random) -> list[list[float]]:
    """Each measure once a round, in random order, so that what the machine does meanwhile hits all alike."""
    found: list[list[float]] = [[] for _ in measures]
    order = list(range(len(measures)))
    for _ in range(rounds):
        rng.shuffle(order)
        for number in order:
            found[number].append(measures[number]())
    return found


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e6


def added(direct: list[float], tapped: list[float]) -> float:
    """Difference of the medians, microseconds."""
    return (statistics.median(tapped) - statistics.median(direct)) * 1e6


@contextlib.contextmanager
def processes(directory: Path) -> Iterator[tuple[int, int]]:
    """Engine and tap; yields their ports."""
    engine_port, tap_port, admin_port = _free(3)
    settings = TapSettings(
        port=tap_port, admin_port=admin_port, upstream=f"http://127.0.0.1:{engine_port}", spool_dir=str(directory)
    )
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=engine, args=(engine_port,)), context.Process(target=tap, args=(settings,))]
    for process in running:
        process.start()
    try:
        for port in (engine_port, tap_port):
            report.await_port(port)
        yield engine_port, tap_port
    finally:
        for process in reversed(running):
            process.terminate()
            process.join(10)


def _free(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=1500, help="streams each way; twice as many plain calls (1500)")
    parser.add_argument("--seed", type=int, default=0, help="order within the rounds")
    options = parser.parse_args()
    asked, streamed = requests(False), requests(True)
    with tempfile.TemporaryDirectory() as directory:
        spool = Path(directory) / "spool"
        with processes(spool) as (engine_port, tap_port):
            direct, through = Client(engine_port), Client(tap_port)
            # Back to back: between paced streams a plain call would measure cold caches of a shared machine.
            calls = [lambda: direct.plain(asked), lambda: through.plain(asked)]
            streams = [lambda: direct.first_byte(streamed), lambda: through.first_byte(streamed)]
            rng = random.Random(options.seed)
            interleaved([*calls, *streams], WARM_UP, rng)
            plain, tapped = interleaved(calls, 2 * options.rounds, rng)
            first, tapped_first = interleaved(streams, options.rounds, rng)
            direct.close()
            through.close()
        kept = sum(1 for _ in iter_records(spool))
    sent = 2 * WARM_UP + 3 * options.rounds
    figures = {
        "added_p50_us": added(plain, tapped),
        "added_stream_ttfb_p50_us": added(first, tapped_first),
        "added_p99_us": percentile(tapped, 0.99) - percentile(plain, 0.99),
        "direct_p50_us": percentile(plain, 0.5),
        "tapped_p50_us": percentile(tapped, 0.5),
        "direct_stream_ttfb_p50_us": percentile(first, 0.5),
        "tapped_stream_ttfb_p50_us": percentile(tapped_first, 0.5),
        "calls_tapped": sent,
        "calls_lost": sent - kept,
    }
    names = ("plain, whole answer", "stream, first byte")
    rows = [
        (name, *(percentile(one, share) for one in pair for share in (0.5, 0.99)), added(*pair))
        for name, pair in zip(names, ((plain, tapped), (first, tapped_first)), strict=True)
    ]
    report.table(
        "Added latency of the tap, microseconds (direct and tapped in turn)",
        ("", "direct p50", "p99", "tapped p50", "p99", "added p50"),
        rows,
    )
    print(f"spooled {kept} of {sent} calls that went through the tap")
    report.write(options.json, "tap_latency", figures, [options.seed])


def iter_records(spool: Path) -> Iterator[bytes]:
    """Ids of all records."""
    reader = SpoolReader(spool)
    while records := reader.read():
        yield from (record.id for record in records)


if __name__ == "__main__":
    main()
