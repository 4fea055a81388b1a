"""Slow, silent, half-dead and greedy clients: each is cut at its deadline; none costs memory, or the others' time."""

import contextlib
import itertools
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.conftest import (
    FIRST_BYTE_SECONDS,
    HEAD_LIMIT,
    IDLE_SECONDS,
    KEEP_ALIVE_SECONDS,
    REQUEST_SECONDS,
    SLACK,
    Rig,
)
from tests.support.strict_engine import Asked, Line
from tests.support.tap_process import tap_process
from tests.support.wire import Client, Cut, chunk, sized

POST = b"POST /v1/embeddings HTTP/1.1\r\nHost: tap\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: tap\r\n"
MEGA = 1 << 20
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def trickle(client: Client, pieces: list[bytes], pause: float, seconds: float) -> float:
    """Send a piece every `pause` seconds until the tap closes; how long that took, at most `seconds`."""
    began = time.monotonic()
    client.sock.settimeout(pause)
    for piece in pieces:
        client.send(piece)
        try:
            while client.reader.more():
                pass
            return time.monotonic() - began
        except TimeoutError:
            pass
        if time.monotonic() - began > seconds:
            break
    pytest.fail(f"still connected after {seconds} s")


def drips(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


SLOW_POST = POST.replace(b"embeddings", b"slow")
SLOW_GET = GET.replace(b"models", b"slow")
SLOW = {
    "a byte of the request line": drips(SLOW_GET * 100),
    "a header": [SLOW_GET] + [b"X-%d: y\r\n" % number for number in range(1000)],
    "a byte of a sized body": [SLOW_POST + b"Content-Length: 1000\r\n\r\n", *drips(b"x" * 999)],
    "a chunk of a byte": [SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n"] * 1000],
    "a byte of a chunk's size": [SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\n", *drips(b"0" * 1000)],
    "a byte of a chunk extension": [SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\n5;", *drips(b"x" * 1000)],
    "a byte of a trailer": [SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", *drips(b"y" * 1000)],
    "a chunk of 2^64-1 bytes": [
        SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        *drips(b"x" * 1000),
    ],
    "nothing after HTTP/0.9": [b"GET /v1/slow\r\n", *[b""] * 1000],
    "nothing after half a head": [SLOW_GET, *[b""] * 1000],
    "nothing after half a body": [SLOW_POST + b"Content-Length: 10\r\n\r\nhello", *[b""] * 1000],
    "nothing after Expect": [SLOW_POST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", *[b""] * 1000],
    "a second request, half": [SLOW_GET + b"\r\n" + SLOW_GET, *[b""] * 1000],
    "a byte of a large upload": [SLOW_POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 500_000, *drips(b"x" * 1000)],
}
"""What a client sends, a piece every now and then."""


def test_no_request_may_take_longer_than_its_deadline(rig: Rig) -> None:
    """All of them at once; meanwhile others are served."""
    took: dict[str, float | str] = {}

    def one(name: str, pieces: list[bytes]) -> None:
        try:
            with rig.client() as client:
                took[name] = trickle(client, pieces, 0.1, REQUEST_SECONDS + FIRST_BYTE_SECONDS + SLACK)
        except BaseException as error:
            took[name] = repr(error)

    threads = [threading.Thread(target=one, args=item) for item in SLOW.items()]
    for thread in threads:
        thread.start()
    served = []
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        with rig.client() as client:
            client.send(b"GET /v1/other HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n")
            assert client.response().json["target"] == "/v1/other"
        served.append(time.monotonic() - began)
        time.sleep(0.05)
    late = {
        name: time_taken
        for name, time_taken in took.items()
        if isinstance(time_taken, str) or time_taken > REQUEST_SECONDS + SLACK
    }
    assert late == {}
    assert statistics.median(served) < 0.5
    whole = [asked.short for asked in rig.engine.asked if asked.target == b"/v1/slow"]
    assert whole in ([], [(b"GET", b"/v1/slow", b"")]), "but for the one that was whole"
    rig.still_sane()


def test_who_says_nothing_is_cut_when_keep_alive_ends(rig: Rig) -> None:
    """From the start, after an empty line, and after an answer."""
    with rig.client() as silent, rig.client() as blank, rig.client() as served:
        blank.send(b"\r\n")
        served.send(GET + b"\r\n")
        served.response()
        began = time.monotonic()
        for client in (silent, served, blank):
            client.ends_within(KEEP_ALIVE_SECONDS + SLACK)
            assert 0.5 * KEEP_ALIVE_SECONDS < time.monotonic() - began < KEEP_ALIVE_SECONDS + SLACK


# -- clients that do not read ------------------------------------------------------------------------------------------


class Firehose:
    """An engine that says as much as it is allowed to, and how much that was."""

    def __init__(self, limit: int, *, pace: float = 0.0) -> None:
        self.sent, self.ended, self._limit, self._pace = 0, threading.Event(), limit, pace

    def __call__(self, asked: Asked, line: Line) -> bool:
        event = chunk(b"data: " + b"x" * 65_000 + b"\n\n")
        try:
            line.send(STREAM)
            while self.sent < self._limit:
                line.send(event)
                self.sent += len(event)
                time.sleep(self._pace)
            line.send(b"0\r\n\r\n")
            return True
        finally:
            self.ended.set()


def asks(path: bytes) -> bytes:
    body = b'{"model": "m", "stream": true, "messages": []}'
    return b"POST %b HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)


@pytest.mark.parametrize("path", [b"/v1/embeddings", b"/v1/chat/completions"], ids=["passed on", "hidden"])
@pytest.mark.parametrize("reads", [0, 1], ids=["nothing", "a byte now and then"])
def test_who_does_not_read_holds_the_engine_back_and_is_cut(rig: Rig, reads: int, path: bytes) -> None:
    """256 MB are on offer; what lies between is bounded by socket buffers, and the tap keeps little of its own.
    A byte now and then is the same as nothing: the window does not open for it."""
    hose = Firehose(256 * MEGA)
    rig.engine.script = hose
    before = rig.tap.rss()
    with rig.client(receive_buffer=16_384) as client:
        client.send(asks(path))
        for _ in range(5):
            time.sleep(0.1 * IDLE_SECONDS)
            if reads:
                client.sock.recv(reads)
        assert hose.sent < 32 * MEGA, "the engine is held back"
        grown = rig.tap.rss() - before
        assert grown < 24 * MEGA, "what waits for the client waits in the engine"
        # The copy for the record may be up to max_capture_bytes (1 MB here).
        assert hose.ended.wait(IDLE_SECONDS + SLACK + 1.0), "a client that never reads is cut"
    assert hose.sent < 32 * MEGA
    rig.engine.fresh()
    rig.still_sane()


def test_who_reads_slowly_gets_all_of_it(rig: Rig) -> None:
    """Slower than the engine for longer than any deadline: as long as it moves, nothing is cut."""
    hose = Firehose(24 * MEGA)
    rig.engine.script = hose
    before, grown = rig.tap.rss(), 0
    with rig.client(receive_buffer=16_384, timeout=5) as client:
        client.send(asks(b"/v1/embeddings"))
        began, got = time.monotonic(), 0
        while time.monotonic() - began < 2 * IDLE_SECONDS:
            data = client.sock.recv(65_536)
            assert data, "cut although it reads"
            client.reader.buffer += data
            got += len(data)
            grown = max(grown, rig.tap.rss() - before)
            time.sleep(0.005)
        body = client.response().body
    assert len(body) >= 24 * MEGA
    assert body == (b"data: " + b"x" * 65_000 + b"\n\n") * (len(body) // 65_008)
    assert grown < 16 * MEGA
    rig.engine.fresh()
    rig.still_sane()


@pytest.mark.parametrize("accepts", [True, False], ids=["does not read", "does not even accept"])
def test_a_deaf_engine_holds_the_client_back(tmp_path: Path, accepts: bool) -> None:
    """The other way round: a large upload waits in the client, not in the tap."""
    with socket.create_server(("127.0.0.1", 0), backlog=16 if accepts else 0) as deaf, contextlib.ExitStack() as stack:
        port = deaf.getsockname()[1]
        if not accepts:
            # A full backlog: whoever comes now waits for its connection.
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
        tap = stack.enter_context(tap_process(tmp_path, port, max_capture_bytes=MEGA))
        before = tap.rss()
        for _ in range(4):
            client = stack.enter_context(Client(tap.port, timeout=0.3))
            with contextlib.suppress(TimeoutError):
                client.send(POST + b"Content-Length: %d\r\n\r\n" % (32 * MEGA) + bytes(31 * MEGA))
        grown = tap.rss() - before
    assert grown < 16 * MEGA, f"{grown >> 20} MB of 124 MB on offer"


# -- clients that leave ------------------------------------------------------------------------------------------------


def waits(ended: list[bool], *, first: bytes = b"") -> Callable[[Asked, Line], bool]:
    """A script that says `first` and notes whether its caller leaves."""

    def script(asked: Asked, line: Line) -> bool:
        line.send(first)
        ended.append(line.left(FIRST_BYTE_SECONDS * 0.7))
        return False

    return script


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("first", [b"", STREAM + chunk(b"data: 1\n\n")], ids=["before the answer", "in mid-stream"])
@pytest.mark.parametrize("path", [b"/v1/embeddings", b"/v1/chat/completions"], ids=["passed on", "hidden"])
def test_when_the_client_leaves_the_engines_call_is_closed(rig: Rig, path: bytes, first: bytes, how: str) -> None:
    ended: list[bool] = []
    rig.engine.script = waits(ended, first=first)
    client = rig.client()
    client.send(asks(path))
    if first:
        client.reader.more()
    else:
        time.sleep(0.1)
    getattr(client, how)()
    end = time.monotonic() + 3
    while not ended and time.monotonic() < end:
        time.sleep(0.005)
    assert ended == [True], "at once, not at a deadline"
    rig.engine.fresh()
    rig.still_sane()


@pytest.mark.parametrize("sent", [b"GE", GET, POST + b"Content-Length: 9\r\n\r\nhell"], ids=["line", "head", "body"])
@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_a_client_that_leaves_in_mid_request_leaves_nothing(rig: Rig, sent: bytes, how: str) -> None:
    client = rig.client()
    client.send(sent)
    getattr(client, how)()
    if how == "half_close":
        # There is no more to come: no reason to wait for a deadline.
        assert client.ends_within(REQUEST_SECONDS + SLACK) < REQUEST_SECONDS + SLACK
        client.close()
    rig.still_sane()
    assert len(rig.engine.asked) == 1


def test_half_closed_after_a_request_is_answered_or_ended_at_once(rig: Rig) -> None:
    """nginx takes it for gone, others answer; what must not be is neither."""

    def script(asked: Asked, line: Line) -> bool:
        time.sleep(0.2)
        line.send(sized(b"{}"))
        return True

    rig.engine.script = script
    with rig.client() as client:
        client.send(GET + b"\r\n")
        client.half_close()
        began = time.monotonic()
        with contextlib.suppress(Cut):
            assert client.response().body == b"{}"
        client.ends_within(1.0)
        assert time.monotonic() - began < 1.0
    rig.engine.fresh()
    # Its request may still be on its way to the engine.
    rig.still_sane(alone=False)


# -- many ------------------------------------------------------------------------------------------------------------


def test_a_thousand_idle_connections_cost_little_and_the_others_are_served(rig: Rig) -> None:
    """Their keep-alive ends while they stand; so what is measured is the moment when all are there."""
    before = rig.tap.rss()
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(rig.client())
        began = time.monotonic()
        rig.still_sane()
        assert time.monotonic() - began < 1.0
        assert rig.tap.rss() - before < 1000 * 24_576, "24 KB each"
    # All of them leave at once.
    rig.still_sane()


def _bad(number: int) -> bytes:
    kinds = (
        b"\x16\x03\x01" + bytes(200),
        GET + b"A : b\r\n\r\n",
        GET + b"X: " + b"v" * HEAD_LIMIT + b"\r\n\r\n",
        POST + b"Content-Length: 99999999\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n4000\r\n" + b"x" * 16_000,
        POST + b"Content-Length: 5\r\n\r\nhel",
        GET[: 3 + number % 20],
        b"GET /pause HTTP/1.1\r\n\r\n",
        GET + b"\r\n" + GET,
        b"POST /v1/feedback HTTP/1.1\r\nContent-Length: 4\r\n\r\nnull",
        b"\r\n" * 50,
    )
    return kinds[number % len(kinds)]


def bad_connections(rig: Rig, count: int) -> None:
    """`count` of them, 50 open at a time: some reset, some close, some wait for their answer."""
    standing: list[Client] = []
    for number in range(count):
        client = rig.client(timeout=3)
        client.send(_bad(number))
        standing.append(client)
        if len(standing) >= 50:
            leaving = standing.pop(0)
            leaving.reset() if number % 3 else leaving.close()
    for client in standing:
        client.close()


def refusals(rig: Rig) -> float:
    """How many requests the tap itself has answered with an error."""
    return sum(value for name, value in rig.tap.metrics().items() if 'route="refused"' in name)


def test_thousands_of_bad_connections_leave_no_memory_and_no_descriptor_behind(rig: Rig) -> None:
    """A leak grows in every round; an allocator that takes another arena does so in one of them."""
    bad_connections(rig, 700)
    time.sleep(0.3)
    files, seen, held = rig.tap.descriptors(), refusals(rig), [rig.tap.rss()]
    for _ in range(3):
        bad_connections(rig, 700)
        rig.settle()
        held.append(rig.tap.rss())
    end = time.monotonic() + REQUEST_SECONDS + SLACK
    while rig.tap.descriptors() > files + 8 and time.monotonic() < end:
        time.sleep(0.05)
    assert rig.tap.descriptors() <= files + 8
    assert min(after - before for before, after in itertools.pairwise(held)) < MEGA, f"{held} bytes"
    assert refusals(rig) - seen > 500, "it has read them: many are reset before"
    rig.still_sane(alone=False)


def test_more_connections_than_allowed_get_503(rig: Rig, tmp_path: Path) -> None:
    with (
        tap_process(tmp_path, rig.engine.port, max_connections=20, keep_alive_seconds=30) as tap,
        contextlib.ExitStack() as stack,
    ):
        inside = [stack.enter_context(Client(tap.port)) for _ in range(20)]
        for client in inside:
            client.send(GET + b"\r\n")
            assert client.response().status == 200
        outside = stack.enter_context(Client(tap.port))
        outside.send(GET + b"\r\n")
        assert outside.response().status == 503
        outside.ends_within(3)
        inside.pop().close()
        time.sleep(0.1)
        again = stack.enter_context(Client(tap.port))
        again.send(GET + b"\r\n")
        assert again.response().status == 200
