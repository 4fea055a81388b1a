"""Slow, silent, half-dead and greedy clients: each is cut at its deadline; none costs memory or keeps others out."""

import contextlib
import itertools
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hostile.cases import GET, POST
from tests.hostile.conftest import DEADLINE_SECONDS, HEAD_LIMIT, NEVER_SECONDS, SETTINGS, Rig, rig_of
from tests.support.patience import wait_until, within
from tests.support.strict_engine import Line
from tests.support.wire import Client, Message, asks, chunk, sized

PLAIN, CHAT = (
    asks(path, b'{"model": "m", "stream": true, "messages": []}')
    for path in (b"/v1/embeddings", b"/v1/chat/completions")
)
MEGA = 1 << 20
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def trickle(rig: Rig, pieces: list[bytes]) -> bool:
    """Send a piece every now and then; whether the tap closes before they are all sent, which takes 100 seconds."""
    with rig.client() as client:
        for piece in pieces:
            client.send(piece)
            while select.select([client.sock], [], [], 0.1)[0]:
                if not client.reader.more():
                    return True
    return False


def drips(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


SLOW_POST = POST.replace(b"embeddings", b"slow")
SLOW_GET = GET.replace(b"models", b"slow")
SLOW = {
    "a byte of the request line": drips(SLOW_GET * 100),
    "a header": [SLOW_GET] + [b"X-%d: y\r\n" % number for number in range(1000)],
    "a byte of a sized body": [SLOW_POST + b"Content-Length: 1000\r\n\r\n", *drips(b"x" * 999)],
    "a chunk of a byte": [SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n"] * 1000],
    "a byte of a trailer": [SLOW_POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", *drips(b"y" * 1000)],
    "nothing after half a head": [SLOW_GET, *[b""] * 1000],
    "nothing after half a body": [SLOW_POST + b"Content-Length: 10\r\n\r\nhello", *[b""] * 1000],
    "nothing after Expect": [SLOW_POST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", *[b""] * 1000],
    "a second request, half": [SLOW_GET + b"\r\n" + SLOW_GET, *[b""] * 1000],
    "a byte of a large upload": [SLOW_POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 500_000, *drips(b"x" * 1000)],
}
"""What a client sends, a piece every now and then."""


def test_no_request_may_take_longer_than_its_deadline(hasty: Rig) -> None:
    """All of them at once; meanwhile others are served."""
    with ThreadPoolExecutor(len(SLOW)) as threads:
        cut = {name: threads.submit(trickle, hasty, pieces) for name, pieces in SLOW.items()}
        while not all(one.done() for one in cut.values()):
            with hasty.client() as client:
                client.send(b"GET /v1/other HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n")
                assert client.response().json["target"] == "/v1/other"
            time.sleep(0.05)
    assert [name for name, one in cut.items() if not one.result()] == []
    whole = [asked.short for asked in hasty.engine.asked if asked.target == b"/v1/slow"]
    assert whole in ([], [(b"GET", b"/v1/slow", b"")]), "but for the one that was whole"


def test_who_says_nothing_is_cut_when_keep_alive_ends(hasty: Rig) -> None:
    """From the start, after an empty line, and after an answer."""
    began = time.monotonic()
    with hasty.client() as silent, hasty.client() as blank, hasty.client() as served:
        blank.send(b"\r\n")
        served.send(GET + b"\r\n")
        served.response()
        for client in (silent, served, blank):
            client.rest()
            assert time.monotonic() - began > DEADLINE_SECONDS


# -- clients that do not read ------------------------------------------------------------------------------------------


EVENT = chunk(b"data: " + b"x" * 65_000 + b"\n\n")


class Firehose:
    """An engine that says an event again and again, and how often it did."""

    def __init__(self, most: int) -> None:
        self.sent, self.ended, self._most = 0, threading.Event(), most

    def __call__(self, asked: Message, line: Line) -> bool:
        try:
            line.send(STREAM)
            while self.sent < self._most:
                line.send(EVENT)
                self.sent += 1
            line.send(b"0\r\n\r\n")
            return True
        finally:
            self.ended.set()


def test_who_does_not_read_holds_the_engine_back_and_is_cut(hasty: Rig) -> None:
    """256 MB are on offer; what lies between is bounded by socket buffers. A byte now and then is the same as nothing:
    the window does not open for it."""
    hoses: list[Firehose] = []

    def script(asked: Message, line: Line) -> bool:
        hoses.append(Firehose(4000))
        return hoses[-1](asked, line)

    hasty.engine.script = script
    with hasty.client(receive_buffer=16_384) as silent, hasty.client(receive_buffer=16_384) as sipping:
        silent.send(CHAT)
        wait_until(lambda: hoses, "the engine is asked")
        sipping.send(CHAT)

        def cut() -> bool:
            with contextlib.suppress(OSError):
                sipping.sock.recv(1, socket.MSG_DONTWAIT)
            return len(hoses) == 2 and all(hose.ended.is_set() for hose in hoses)

        wait_until(cut, "who does not read is cut", every=0.1)
    assert max(hose.sent for hose in hoses) < 500, "the engine is held back"


def test_who_reads_slowly_gets_all_of_it(hasty: Rig) -> None:
    """Slower than the engine for longer than any deadline: as long as it moves, nothing is cut."""
    count = 800
    hose = hasty.engine.script = Firehose(count)
    with hasty.client() as client:
        client.send(PLAIN)
        assert (client.reader.line(), len(client.reader.fields())) == (b"HTTP/1.1 200 OK", 2)
        began = time.monotonic()
        for number in range(count):
            assert client.reader.exactly(len(EVENT)) == EVENT
            assert number != count // 4 or not hose.ended.is_set(), "the engine is held back"
            time.sleep(max(0.0, began + 2 * DEADLINE_SECONDS * number / count - time.monotonic()))
        assert client.reader.exactly(5) == b"0\r\n\r\n"


def test_large_bodies_wait_in_their_clients_until_there_is_room(tmp_path: Path) -> None:
    """Two of them fit. Who waits is served when others have left, and costs small ones nothing."""
    size, settings = 2 * MEGA, {**SETTINGS, "constants": {"body_budget.LIMIT": 5 * MEGA}}
    with rig_of(tmp_path, NEVER_SECONDS, **settings) as rig, contextlib.ExitStack() as stack:
        upload = POST + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
        clients = [stack.enter_context(rig.client()) for _ in range(5)]
        # The first two have all the room, and one byte to go.
        taken = [rig.tap.stuff(client, upload[:-1]) for client in clients[:2]]
        taken += [rig.tap.stuff(client, upload) for client in clients[2:]]
        for client in clients:
            client.sock.setblocking(True)
        assert taken[:2] == [len(upload) - 1] * 2
        with rig.client() as small:
            small.send(GET + b"\r\n")
            assert small.response().status == 200
        assert [asked.target for asked in rig.engine.asked] == [b"/v1/models"]
        clients[0].reset()
        for client, sent in list(zip(clients, taken, strict=True))[1:]:
            client.send(upload[sent:])
            assert client.response().json["size"] == size


def test_who_finds_no_room_in_time_is_told_to_come_again(tmp_path: Path) -> None:
    settings = {**SETTINGS, "constants": {"body_budget.LIMIT": 2 * MEGA}}
    with rig_of(tmp_path, DEADLINE_SECONDS, **settings) as rig, rig.client() as first, rig.client() as second:
        head = POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (MEGA + MEGA // 2)
        first.send(head)
        assert first.reader.line() == b"HTTP/1.1 100 Continue"
        first.send(bytes(MEGA))  # which gives it time
        second.send(head)
        answer = second.response()
        assert (answer.status, answer.interim) == (503, [])
        assert answer.one(b"retry-after") == b"1"


def test_room_for_the_next_request_says_nothing_into_the_answer_before(tmp_path: Path) -> None:
    settings = {**SETTINGS, "constants": {"body_budget.LIMIT": 2 * MEGA}}
    with rig_of(tmp_path, NEVER_SECONDS, **settings) as rig, rig.client() as first, rig.client() as second:
        gate, head = threading.Event(), POST + b"Content-Length: %d\r\n" % (MEGA + MEGA // 2)
        first.send(head + b"Expect: 100-continue\r\n\r\n")
        assert first.reader.line() == b"HTTP/1.1 100 Continue"
        half = sized(b"hello")[:-2]

        def halves(asked: Message, line: Line) -> bool:
            line.send(half)
            gate.wait(within())
            line.send(b"lo")
            return True

        rig.engine.script = halves
        second.send(GET + b"\r\n" + head + b"Expect: 100-continue\r\n\r\n")
        assert second.reader.exactly(len(half)) == half
        first.reset()
        rig.tap.settle()
        gate.set()
        assert second.reader.exactly(2) == b"lo"
        assert second.reader.line() == b"HTTP/1.1 100 Continue"


# -- clients that leave ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"GE", GET, POST + b"Content-Length: 9\r\n\r\nhell"], ids=["line", "head", "body"])
@pytest.mark.parametrize("how", ["close", "reset", "half_close"])
def test_a_client_that_leaves_in_mid_request_leaves_nothing(rig: Rig, sent: bytes, how: str) -> None:
    client = rig.client()
    client.send(sent)
    getattr(client, how)()
    if how == "half_close":
        # There is no more to come: no reason to wait for a deadline.
        client.rest()
        client.close()
    rig.still_sane()
    assert len(rig.engine.asked) == 1


# -- many ------------------------------------------------------------------------------------------------------------


REFUSED = (
    b"\x16\x03\x01" + bytes(200),
    GET + b"X: " + b"v" * HEAD_LIMIT + b"\r\n\r\n",
    POST + b"Content-Length: 99999999\r\n\r\n",
)
BAD = (
    *REFUSED,
    POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n4000\r\n" + b"x" * 16_000,
    POST + b"Content-Length: 5\r\n\r\nhel",
    GET[:9],
    GET + b"\r\n" + GET,
    b"POST /v1/feedback HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nnull",
    b"\r\n" * 50,
)


def bad_connections(rig: Rig, count: int) -> None:
    """`count` of them, 50 open at a time: some wait for their refusal, some reset, some close."""
    standing: list[Client] = []
    for number in range(count):
        sent = BAD[number % len(BAD)]
        client = rig.client()
        client.send(sent)
        if sent in REFUSED:
            assert client.response().status >= 400
        standing.append(client)
        if len(standing) >= 50:
            leaving = standing.pop(0)
            leaving.reset() if number % 3 else leaving.close()
    for client in standing:
        client.close()


def test_thousands_of_bad_connections_leave_no_memory_and_no_descriptor_behind(rig: Rig) -> None:
    """A leak grows in every round; an allocator that takes another arena does so in one of them."""
    files, held = rig.tap.descriptors(), []
    for _ in range(4):
        bad_connections(rig, 700)
        rig.tap.settle()
        held.append(rig.tap.rss())
    wait_until(lambda: rig.tap.descriptors() <= files + 8, "the descriptors are closed")
    assert min(after - before for before, after in itertools.pairwise(held)) < MEGA, f"{held} bytes"
