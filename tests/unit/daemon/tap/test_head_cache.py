"""What is not read twice must be what llhttp would have read: a head is judged once, and only its length may change.

Other heads behind one that was let pass: `tests/hostile/test_framing.py`.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.tap.errors import UpstreamBroke
from daemon.tap.http import RequestParser
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Request

ASKED = b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\nX-Last: 1\r\n\r\n%b"
TOLD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b"
BODIES = st.binary(max_size=1500)
CHANGES = (
    BODIES, st.integers(min_value=0), st.integers(0, 4), st.sampled_from([b"", b"\r\n", b"\n", b" ", b"0", b"+", b"a"])
)  # fmt: skip


def asked(*pieces: bytes) -> tuple[RequestParser, list[Request]]:
    """A parser that has read `pieces`, and what it found in them."""
    reading = RequestParser(max_body_bytes=2000, clock=lambda: 5.0)
    for piece in pieces:
        reading.feed(piece)
    found = list(reading.requests)
    reading.requests.clear()
    return reading, found


def told(*replies: bytes) -> ReplyParser:
    """A parser that has read `replies`, each to a request of its own."""
    reading = ReplyParser()
    for reply in replies:
        reading.begin(head_only=False, max_capture_bytes=10_000)
        reading.feed(reply)
    return reading


def said(request: Request) -> tuple[object, ...]:
    head = request.head
    return head.method, head.target, head.headers, head.old, head.keep_alive, head.framed, request.body


def mangled(data: bytes, place: int, cut: int, new: bytes) -> bytes:
    place %= len(data) + 1
    return data[:place] + new + data[place + cut :]


@given(BODIES, BODIES.filter(len))
def test_the_same_head_with_another_body_is_read_without_llhttp(first: bytes, second: bytes) -> None:
    data = ASKED % (len(second), second)
    request = asked(ASKED % (len(first), first))[0].again(data)
    assert request is not None
    assert said(request) == said(asked(data)[1][0])


@given(*CHANGES)
@example(b"body", 50, 0, b"\r\n")
def test_whatever_is_taken_for_the_same_head_llhttp_reads_alike(body: bytes, place: int, cut: int, new: bytes) -> None:
    first = ASKED % (4, b"body")
    data = mangled(ASKED % (len(body), body), place, cut, new)
    request = asked(first)[0].again(data)
    if request is not None:
        assert [said(one) for one in asked(first, data)[1][1:]] == [said(request)]


@given(*CHANGES)
def test_an_answer_is_read_alike_after_one_with_the_same_head(body: bytes, place: int, cut: int, new: bytes) -> None:
    data = mangled(TOLD % (len(body), body), place, cut, new)
    found = []
    for first in (TOLD % (4, b"body"), b"HTTP/1.1 201 X\r\ncontent-length: 0\r\n\r\n"):
        try:
            reading = told(first, data)
        except UpstreamBroke:
            found.append(None)
        else:
            head = reading.head
            found.append((reading.done, reading.keep_alive, head.status, head.own, b"".join(reading.body)))
    assert found[0] == found[1]


def test_a_head_before_the_final_one_is_not_remembered_for_it() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\ncontent-length: 49\r\n\r\n"
    final = b"HTTP/1.1 304 Not Modified\r\ncontent-length: 49\r\n\r\n"
    with pytest.raises(UpstreamBroke):
        told(early + final, early + 49 * b"x")


@pytest.mark.parametrize(
    ("reply", "remembered"),
    [
        (TOLD % (4, b"body"), True),
        (TOLD % (0, b""), False),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", False),
    ],
)
def test_answers_without_a_body_of_their_length_are_not_remembered(reply: bytes, remembered: bool) -> None:
    reading = told(reply)
    before = reading.head
    reading.begin(head_only=False, max_capture_bytes=10_000)
    reading.feed(TOLD % (3, b"new"))
    assert (reading.head is before, reading.done, reading.fresh) == (remembered, True, b"new")
