"""An engine that talks nonsense harms the one call at most: no agent ever gets another call's bytes for its answer.

The scripts write raw bytes. A client that reads strictly gets a well-formed answer, a 502, or a connection that ends
before the answer is whole; and the next one, over whatever connection the tap takes then, gets its own.
"""

import threading
import time

import msgspec
import pytest

from tests.hostile.cases import GET
from tests.hostile.conftest import DEADLINE_SECONDS, Rig
from tests.support.patience import wait_until, within
from tests.support.strict_engine import Line, Script, sends
from tests.support.wire import Message, asks, chunk, sized

OTHERS = sized(b'{"secret": "of another call"}')
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PATHS = [b"/v1/models", b"/v1/chat/completions"]
"""Once as bytes that go by, once where the tap may hold an answer to hide token fields in it."""
WAYS = {
    "passed on": (PATHS[0], b""),
    "held": (PATHS[1], b"Content-Type: application/json\r\n"),
    "held by event": (PATHS[1], b"Content-Type: text/event-stream\r\n"),
}
"""Path of the request and a header of the answer."""


class Said(msgspec.Struct, frozen=True):
    """What the engine writes, piece by piece, and what a client may make of it."""

    name: str
    pieces: tuple[bytes, ...]
    body: bytes | None = None
    """The answer's, if it may pass as whole; None: it may not."""
    status: int = 200
    closes: bool = False
    """The engine ends the connection behind it."""
    must_pass: bool = False


def broken(name: str, *pieces: bytes, closes: bool = False) -> Said:
    """No whole answer may come of it."""
    return Said(name, pieces, closes=closes)


def may_pass(name: str, body: bytes, *pieces: bytes, status: int = 200, closes: bool = False) -> Said:
    """The whole answer in a form that is valid, or a 502."""
    return Said(name, pieces, body, status, closes)


def whole(name: str, body: bytes, *pieces: bytes, status: int = 200, closes: bool = False) -> Said:
    """The whole answer, nothing else."""
    return Said(name, pieces, body, status, closes, must_pass=True)


SAID = [
    whole("plain", b"{}", sized(b"{}")),
    whole("byte by byte", b"{}", *(bytes([byte]) for byte in sized(b"{}"))),
    whole("of no bytes", b"", sized(b"")),
    whole("chunked", b"{}", CHUNKED + chunk(b"{}") + b"0\r\n\r\n"),
    whole("chunked, byte by byte", b"{}",
          CHUNKED, *(bytes([byte]) for byte in chunk(b"{") + chunk(b"}") + b"0\r\n\r\n")),
    whole("chunk extensions", b"{}", CHUNKED + b"2;a=b\r\n{}\r\n0;c\r\n\r\n"),
    whole("trailers", b"{}", CHUNKED + chunk(b"{}") + b"0\r\nX-Sum: 1\r\n\r\n"),
    whole("HTTP/1.0 without length", b"{}", b"HTTP/1.0 200 OK\r\n\r\n{}", closes=True),
    whole("HTTP/1.1 without length", b"{}", b"HTTP/1.1 200 OK\r\n\r\n{}", closes=True),
    whole("HTTP/1.0 with length", b"{}", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", closes=True),
    whole("100 first", b"{}", b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"{}")),
    whole("103 first, by itself", b"{}", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", sized(b"{}")),
    whole("ten times 102", b"{}", *[b"HTTP/1.1 102 Processing\r\n\r\n"] * 10, sized(b"{}")),
    whole("error with close", b"{}", sized(b"{}", b"Connection: close", status=b"500 X"), status=500, closes=True),
    whole("204", b"", b"HTTP/1.1 204 No Content\r\n\r\n", status=204),
    whole("304 with the length of what is not there", b"",
          b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", status=304),
    # Two answers to one question.
    may_pass("two at once", b"{}", sized(b"{}") + OTHERS),
    may_pass("two, one after the other", b"{}", sized(b"{}"), OTHERS),
    may_pass("an end that comes twice", b"{}", CHUNKED + chunk(b"{}") + b"0\r\n\r\n", b"0\r\n\r\n"),
    may_pass("garbage behind", b"{}", sized(b"{}") + b"garbage"),
    may_pass("garbage behind, later", b"{}", sized(b"{}"), b"garbage"),
    may_pass("a line end behind, later", b"{}", sized(b"{}"), b"\r\n"),
    may_pass("204 with a body", b"", b"HTTP/1.1 204 No Content\r\n\r\n" + OTHERS, status=204),
    may_pass("204 in chunks", b"", b"HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
             status=204),
    may_pass("304 with a body", b"", b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\nhello", status=304),
    may_pass("length too short", b"hello", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, world"),
    may_pass("length too short, the rest later", b"hello",
             b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b", world"),
    may_pass("lengths that agree", b"{}", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
    # No answer at all, or half of one.
    broken("nothing", closes=True),
    broken("half a head", b"HTTP/1.1 200 OK\r\nContent-Le", closes=True),
    broken("length too long", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", closes=True),
    broken("chunks without their end", CHUNKED + chunk(b"hello"), closes=True),
    broken("a chunk cut short", CHUNKED + b"50\r\nhello", closes=True),
    broken("1xx and no answer", b"HTTP/1.1 103 Early Hints\r\n\r\n", closes=True),
    broken("garbage before", b"garbage\r\n" + sized(b"{}")),
    broken("a request", b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"),
    broken("garbage without end", b"x" * 100_000),
    broken("a protocol switched to unasked", b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + OTHERS),
    broken("HTTP/2", b"HTTP/2 200\r\n\r\n"),
    may_pass("HTTP/2.0", b"{}", b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    broken("ICY", b"ICY 200 OK\r\n\r\n{}"),
    broken("status of two digits", b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}"),
    # Two ways to read it.
    broken("coding and length",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + OTHERS),
    broken("length and coding",
           b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    broken("lengths that differ", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}   "),
    broken("length negative", b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"),
    broken("length of 2^64", b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n{}"),
    broken("chunked, identity", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    may_pass("coding in HTTP/1.0", b"{}",
             b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", closes=True),
    broken("folded header", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\n{}"),
    broken("bare line feeds", b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}"),
    broken("bare carriage return", b"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 5\r\nContent-Length: 2\r\n\r\n{}"),
    broken("space before the colon", b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}"),
    broken("NUL in a header", b"HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 2\r\n\r\n{}"),
    broken("header without colon", b"HTTP/1.1 200 OK\r\nAbc\r\nContent-Length: 2\r\n\r\n{}"),
    broken("NUL in the reason", b"HTTP/1.1 200 O\x00K\r\nContent-Length: 2\r\n\r\n{}"),
    broken("chunk size negative", CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n"),
    broken("chunk size of 2^64+2", CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    broken("chunk without its end", CHUNKED + b"2\r\n{}0\r\n\r\n" + OTHERS),
    broken("chunk with bare LFs", CHUNKED + b"2\n{}\n0\n\n"),
    broken("headers of 1 MB", b"HTTP/1.1 200 OK\r\nA: " + b"x" * 1_000_000 + b"\r\nContent-Length: 2\r\n\r\n{}"),
    broken("headers, very many", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 160_000 + b"Content-Length: 2\r\n\r\n{}"),
]  # fmt: skip


def says(said: Said, header: bytes, over: threading.Event) -> Script:
    """A script that writes `said` with one more header, and keeps the connection if it does not close."""
    first, ok, rest = (said.pieces or (b"",))[0].partition(b" 200 OK\r\n")
    pieces = (first + ok + (header if ok else b"") + rest, *said.pieces[1:])

    def script(asked: Message, line: Line) -> bool:
        try:
            line.send(*pieces, pause=0.005 if len(said.pieces) < 5 else 0.0005)
        finally:
            over.set()
        return not said.closes

    return script


def ask(path: bytes) -> bytes:
    return GET + b"\r\n" if path == PATHS[0] else asks(path, b'{"model": "m", "messages": []}')


@pytest.mark.promise
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("said", SAID, ids=[said.name for said in SAID])
def test_what_the_engine_says_wrong_stays_in_its_call(rig: Rig, said: Said, way: str) -> None:
    path, header = WAYS[way]
    over = threading.Event()
    with rig.client() as client, rig.client() as other:
        rig.engine.script = says(said, header, over)
        client.send(ask(path))
        got = client.outcome()
        assert over.wait(within())
        # What the engine wrote unasked has reached the tap before it takes the connection for somebody else: no proxy
        # could tell it from an answer afterwards.
        rig.tap.settle()
        rig.engine.fresh()
        if got is not None and got.status == said.status and said.body is not None:
            assert got.body == said.body
        else:
            assert not said.must_pass, f"got {got}"
            assert got is None or got.status in (502, 504)
        # The other call: no byte of what is left over may be in its answer.
        for number in range(3):
            other.send(b"GET /v1/other-%d HTTP/1.1\r\nHost: tap\r\n\r\n" % number)
            assert other.response().json["target"] == f"/v1/other-{number}"
        # And the same client, if its connection goes on.
        if got is not None:
            client.send(b"GET /v1/again HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n")
            assert [answer.json["target"] for answer in client.responses()] in ([], ["/v1/again"])
        assert b"secret" not in client.reader.raw


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        CHUNKED + chunk(b"hello") + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(OTHERS) + OTHERS,
    ],
    ids=["length", "chunked", "length and body", "chunks and body", "another answer as body"],
)
def test_an_answer_to_head_has_no_body(rig: Rig, reply: bytes) -> None:
    rig.engine.script = sends(reply)
    with rig.client() as client:
        client.send(GET.replace(b"GET", b"HEAD") + b"\r\n")
        got = client.response(head_only=True)
        assert got.status in (200, 502)
        rig.engine.fresh()
        client.send(b"GET /v1/again HTTP/1.1\r\nHost: tap\r\nConnection: close\r\n\r\n")
        assert [answer.json.get("target", "an error") for answer in client.responses()] in ([], ["/v1/again"])


def test_a_flood_of_interim_answers_ends(rig: Rig) -> None:
    sent = []
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: <" + b"x" * 1000 + b">\r\n\r\n"

    def script(asked: Message, line: Line) -> bool:
        try:
            for _ in range((64 << 20) // len(interim)):
                line.send(interim)
            sent.append("all of it")
        finally:
            sent.append("ended")
        return False

    rig.engine.script = script
    with rig.client() as client:
        client.send(ask(b"/v1/models"))
        client.rest()
    wait_until(lambda: sent, "the engine's call is closed")
    assert sent == ["ended"], "it might have gone on for ever"


def test_an_answer_that_stops_half_way_is_cut_at_the_deadline(hasty: Rig) -> None:
    left = []

    def script(asked: Message, line: Line) -> bool:
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
        left.append(line.left())
        return False

    hasty.engine.script = script
    began = time.monotonic()
    with hasty.client() as client:
        client.send(ask(PATHS[0]))
        assert client.outcome() is None
        assert time.monotonic() - began > DEADLINE_SECONDS
        wait_until(lambda: left, "the engine's call ends")
    assert left == [True], "the tap closed it"
