"""What is not read twice must be what llhttp would have read: a head is judged once, and only its length may change."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.tap.errors import Refused, UpstreamBroke
from daemon.tap.head_cache import HeadCache
from daemon.tap.http import RequestParser
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Request

ASKED = b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: %d\r\nX-Last: 1\r\n\r\n%b"
TOLD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b"
BODIES = st.binary(max_size=1500)


def parser(hold: int = 2000) -> RequestParser:
    return RequestParser(max_header_bytes=1000, max_body_bytes=2000, hold=lambda target: hold, clock=lambda: 5.0)


def asked(data: bytes) -> RequestParser:
    reading = parser()
    reading.feed(data)
    reading.requests.popleft()
    return reading


def read_anew(*pieces: bytes) -> list[Request]:
    reading = parser()
    for piece in pieces:
        reading.feed(piece)
    return list(reading.requests)


def told(data: bytes) -> ReplyParser:
    reading = ReplyParser()
    reading.begin(head_only=False, max_capture_bytes=10_000)
    reading.feed(data)
    return reading


def is_remembered(reading: ReplyParser) -> bool:
    before = reading.head
    reading.begin(head_only=False, max_capture_bytes=10_000)
    reading.feed(TOLD % (3, b"new"))
    return reading.head is before


def said(request: Request) -> tuple[object, ...]:
    head = request.head
    return head.method, head.target, head.headers, head.old, head.keep_alive, head.framed, request.body, request.upload


def mangled(data: bytes, place: int, cut: int, new: bytes) -> bytes:
    place %= len(data) + 1
    return data[:place] + new + data[place + cut :]


@given(BODIES, BODIES.filter(len))
def test_the_same_head_with_another_body_is_read_without_llhttp(first: bytes, second: bytes) -> None:
    request = asked(ASKED % (len(first), first)).again(ASKED % (len(second), second))
    assert request is not None
    assert said(request) == said(read_anew(ASKED % (len(second), second))[0])


@given(
    BODIES, st.integers(min_value=0), st.integers(0, 4), st.sampled_from([b"", b"\r\n", b"\n", b" ", b"0", b"+", b"a"])
)
@example(b"body", 50, 0, b"\r\n")
def test_whatever_is_taken_for_the_same_head_llhttp_reads_alike(body: bytes, place: int, cut: int, new: bytes) -> None:
    first = ASKED % (4, b"body")
    data = mangled(ASKED % (len(body), body), place, cut, new)
    request = asked(first).again(data)
    if request is not None:
        assert [said(one) for one in read_anew(first, data)[1:]] == [said(request)]


@pytest.mark.parametrize("last", [0, 9, 10, 99, 100, 1000])
def test_a_length_has_to_add_up_however_many_digits_the_last_one_had(last: int) -> None:
    form = b"A\r\nContent-Length: %b\r\n\r\n%b"
    found = set()
    for length in (*range(14), *range(90, 110), *range(990, 1010)):
        for size in range(max(0, length - 12), length + 13):
            for said in (b"%d", b"0%d", b"+%d", b"-%d", b" %d"):
                head_cache = HeadCache(b"A\r\nContent-Length: ", b"\r\n\r\n")
                assert head_cache.body(form % (b"%d" % last, bytes(last))) == bytes(last)
                if head_cache.body(form % (said % length, bytes(size))) is not None:
                    found.add((said, length, size))
    assert all(said == b"%d" and length == size for said, length, size in found)
    assert {length for _, length, _ in found} >= {*range(1, 14), *range(90, 110), *range(990, 1010)}


@pytest.mark.parametrize(
    "data",
    [
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: 4\r\nX-Last: 2\r\n\r\nbody",
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: +4\r\nX-Last: 1\r\n\r\nbody",
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: 4 \r\nX-Last: 1\r\n\r\nbody",
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: \r\nX-Last: 1\r\n\r\n",
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: 4\r\nContent-Length: 4\r\nX-Last: 1\r\n\r\nbody",
        ASKED % (5, b"body"),
        ASKED % (3, b"body"),
        ASKED % (4, b"body") * 2,
        ASKED % (1800, b"a" * 1800),
    ],
)
def test_any_other_byte_a_wrong_length_or_a_large_body_goes_to_llhttp(data: bytes) -> None:
    reading = parser(hold=1500)
    reading.feed(ASKED % (4, b"body"))
    reading.requests.popleft()
    assert reading.again(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        b"\r\n" + ASKED % (4, b"body") + b"\r\n",
        ASKED % (4, b"body") * 2,
    ],
)
def test_only_a_whole_request_that_another_may_follow_is_remembered(data: bytes) -> None:
    reading = parser()
    reading.feed(data)
    reading.requests.clear()
    assert reading.again(data) is None


def test_nothing_is_taken_for_a_request_in_the_middle_of_one() -> None:
    reading = asked(ASKED % (4, b"body"))
    reading.feed(b"POST /v1/y HTTP/1.1\r\nContent-Length: 60\r\n\r\n")
    assert reading.again(ASKED % (4, b"body")) is None


def test_llhttp_goes_on_where_it_left_off() -> None:
    reading = asked(ASKED % (4, b"body"))
    assert reading.again(ASKED % (2, b"ab")) is not None
    reading.feed(b"GET /health HTTP/1.1\r\n\r\n")
    assert reading.requests.popleft().path == b"/health"
    with pytest.raises(Refused):
        reading.feed(b"POST /v1/x HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")


@given(BODIES.filter(len), BODIES.filter(len))
def test_the_same_answer_with_another_body_is_read_without_llhttp(first: bytes, second: bytes) -> None:
    reading = told(TOLD % (len(first), first))
    before = reading.head
    reading.begin(head_only=False, max_capture_bytes=10_000)
    reading.feed(TOLD % (len(second), second))
    assert (reading.head is before, reading.done, reading.keep_alive) == (True, True, True)
    assert b"".join(reading.body) == reading.fresh == second


@given(
    BODIES, st.integers(min_value=0), st.integers(0, 4), st.sampled_from([b"", b"\r\n", b"\n", b" ", b"0", b"+", b"a"])
)
def test_an_answer_is_read_alike_after_one_with_the_same_head(body: bytes, place: int, cut: int, new: bytes) -> None:
    data = mangled(TOLD % (len(body), body), place, cut, new)
    found = []
    for first in (TOLD % (4, b"body"), b"HTTP/1.1 201 X\r\ncontent-length: 0\r\n\r\n"):
        reading = told(first)
        reading.begin(head_only=False, max_capture_bytes=10_000)
        try:
            reading.feed(data)
        except UpstreamBroke:
            found.append(None)
        else:
            head = reading.head
            found.append((reading.done, reading.keep_alive, head.status, head.headers, b"".join(reading.body)))
    assert found[0] == found[1]


def test_a_head_before_the_final_one_is_not_remembered_for_it() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\ncontent-length: 49\r\n\r\n"
    reading = told(early + b"HTTP/1.1 304 Not Modified\r\ncontent-length: 49\r\n\r\n")
    assert reading.done
    reading.begin(head_only=False, max_capture_bytes=10_000)
    with pytest.raises(UpstreamBroke):
        reading.feed(early + 49 * b"x")


def test_answers_without_a_body_of_their_length_are_not_remembered() -> None:
    assert is_remembered(told(TOLD % (4, b"body")))
    assert not is_remembered(told(TOLD % (0, b"")))
    assert not is_remembered(told(b"HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\n"))
    assert not is_remembered(told(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"))


def test_the_length_has_one_place() -> None:
    head = b"HTTP/1.1 200 OK\r\nX: a\r\n\r\n"
    assert HeadCache.of(head + b"body", 4) is None
    twice = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody"
    assert HeadCache.of(twice, 4) is None
