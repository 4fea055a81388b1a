"""Bytes to requests and responses, however they are cut, and refusals where two readers could disagree."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tap.errors import Refused, UpstreamBroke
from daemon.tap.held import Held
from daemon.tap.http import RequestParser, refusal_bytes
from daemon.tap.reply import ReplyParser
from daemon.tap.request import Head, request_bytes

POST = b"POST /v1/x?q=1 HTTP/1.1\r\nHost: tap\r\nAuthorization: Bearer k\r\nContent-Length: 4\r\n\r\nbody"


def parser(**limits: int) -> RequestParser:
    hold = limits.pop("hold", 1000)
    told = {"max_header_bytes": 1000, "max_body_bytes": 1000, **limits}
    return RequestParser(**told, hold=lambda target: hold, clock=lambda: 5.0)


def feed_many(reading: RequestParser, data: bytes, times: int) -> None:
    for _ in range(times):
        reading.feed(data)


def parsed(data: bytes, **limits: int):
    reading = parser(**limits)
    reading.feed(data)
    return reading.requests


def reply(data: bytes, *, head_only: bool = False, capture: int = 1000) -> ReplyParser:
    reading = ReplyParser()
    reading.begin(head_only=head_only, max_capture_bytes=capture)
    reading.feed(data)
    return reading


@given(st.lists(st.integers(min_value=1, max_value=len(POST) - 1), max_size=6))
def test_a_request_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    reading = parser()
    edges = [0, *sorted(set(cuts)), len(POST)]
    for start, end in pairwise(edges):
        reading.feed(POST[start:end])
    (request,) = reading.requests
    assert (request.method, request.head.target, request.path, request.body) == (
        b"POST",
        b"/v1/x?q=1",
        b"/v1/x",
        b"body",
    )
    assert request.head.keep_alive
    assert not reading.partial


def test_pipelined_requests_come_in_order() -> None:
    first, second = parsed(POST + b"GET /health HTTP/1.1\r\n\r\n")
    assert (first.body, second.head.target) == (b"body", b"/health")


def test_chunks_are_put_together_and_trailers_are_no_headers() -> None:
    (request,) = parsed(
        b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-Evolved-Opt-Out: 1\r\n\r\n"
    )
    assert request.body == b"abcde"
    assert request.header(b"x-evolved-opt-out") == b""


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"X-Folded: a\r\n b\r\n",
        b"X-Bare: a\n",
        b"Content-Length : 1\r\n",
        b"Content-Length: -1\r\n",
    ],
)
def test_what_two_servers_could_read_differently_is_refused(head: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        parsed(b"POST /v1/x HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n0\r\n\r\n")
    assert refusal.value.status == 400


def test_an_upgrade_is_refused_and_not_passed_on_without_its_body() -> None:
    reading = parser()
    with pytest.raises(Refused):
        reading.feed(b"POST /v1/x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\na")
    assert not reading.requests


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v1/x HTTP/1.1\r\nX: " + b"a" * 2000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"POST /v1/x HTTP/1.1\r\nContent-Length: 2000\r\n\r\n", 413),
        (b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"a" * 2000 + b"\r\n", 413),
    ],
)
def test_limits_answer_with_their_own_status(data: bytes, status: int) -> None:
    with pytest.raises(Refused) as refusal:
        parsed(data)
    assert refusal.value.status == status


def test_a_header_without_an_end_does_not_grow_for_ever() -> None:
    reading = parser()
    reading.feed(b"GET /v1/x HTTP/1.1\r\nX: ")
    with pytest.raises(Refused) as refusal:
        feed_many(reading, b"a" * 10_000, 100)
    assert refusal.value.status == 431


def test_what_came_before_the_malformed_request_still_counts() -> None:
    reading = parser()
    with pytest.raises(Refused):
        reading.feed(POST + b"\x00\x01")
    assert len(reading.requests) == 1


def test_a_client_that_waits_for_100_continue_is_noticed() -> None:
    reading = parser()
    reading.feed(b"POST /v1/x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert reading.expects
    reading.feed(b"ab")
    assert not reading.expects
    assert len(reading.requests) == 1


def test_headers_between_neighbours_end_at_the_tap() -> None:
    (request,) = parsed(
        b"POST /v1/x HTTP/1.1\r\nHost: tap\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nTE: trailers\r\n"
        b"Authorization: Bearer k\r\nAccept: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    )
    assert request_bytes(request, b"engine:1", b"new body") == (
        b"POST /v1/x HTTP/1.1\r\nHost: engine:1\r\nAuthorization: Bearer k\r\nAccept: a\r\n"
        b"Content-Length: 8\r\n\r\nnew body"
    )


def test_an_old_client_makes_an_old_request() -> None:
    (request,) = parsed(b"GET /v1/models HTTP/1.0\r\n\r\n")
    assert request_bytes(request, b"e:1", b"").startswith(b"GET /v1/models HTTP/1.0\r\n")
    assert not request.head.keep_alive


def test_a_sized_response_ends_with_its_last_byte() -> None:
    reading = reply(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nab")
    assert not reading.done
    reading.feed(b"c")
    assert (reading.done, reading.keep_alive, reading.head.status, reading.body) == (True, True, 200, [b"ab", b"c"])
    assert reading.head.content_type == "text/plain"


def test_a_response_without_a_length_ends_when_the_engine_closes() -> None:
    reading = reply(b"HTTP/1.1 200 OK\r\n\r\nabc")
    assert not reading.done
    assert reading.eof()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
    ],
)
def test_a_response_with_a_length_does_not_end_when_the_engine_closes(data: bytes) -> None:
    assert not reply(data).eof()


def test_an_interim_response_is_not_the_response() -> None:
    reading = reply(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not reading.done
    reading.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
    assert (reading.done, reading.head.status) == (True, 200)


def test_the_answer_to_head_has_no_body() -> None:
    assert reply(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", head_only=True).done


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 300_000,
    ],
)
def test_an_engine_that_speaks_otherwise_is_broken(data: bytes) -> None:
    with pytest.raises(UpstreamBroke):
        reply(data)


def test_a_long_response_is_not_kept() -> None:
    reading = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", capture=3)
    assert (reading.done, reading.overflow, reading.body) == (True, True, [])


def test_a_refusal_to_head_has_no_body() -> None:
    whole = refusal_bytes(Refused(404, "unknown_path", "no"))
    assert (
        refusal_bytes(Refused(404, "unknown_path", "no"), head_only=True)
        == whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    )


def test_a_body_above_the_hold_is_handed_out_as_it_comes() -> None:
    reading = parser(hold=4, max_body_bytes=100)
    reading.feed(b"POST /v1/x HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
    (request,) = reading.requests
    upload = request.upload
    assert upload is not None
    assert (request.body, upload.length, upload.take(), upload.done) == (b"", 10, b"abc", False)
    assert request_bytes(request, b"e:1", b"").endswith(b"Content-Length: 10\r\n\r\n")
    reading.feed(b"defghij" + b"GET /health HTTP/1.1\r\n\r\n")
    assert (upload.take(), upload.done, len(reading.requests)) == (b"defghij", True, 2)


def test_a_chunked_body_is_held_until_it_turns_out_to_be_large() -> None:
    reading = parser(hold=4, max_body_bytes=100)
    reading.feed(b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    assert not reading.requests
    reading.feed(b"3\r\ndef\r\n")
    (request,) = reading.requests
    assert request.upload is not None
    assert (request.upload.length, request.upload.take()) == (None, b"abcdef")
    assert b"Transfer-Encoding: chunked\r\n" in request_bytes(request, b"e:1", b"")
    reading.feed(b"0\r\n\r\n")
    assert request.upload.done


def test_an_upload_that_breaks_its_limit_says_so_to_whoever_passes_it_on() -> None:
    reading = parser(hold=4, max_body_bytes=10)
    reading.feed(b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n")
    (request,) = reading.requests
    with pytest.raises(Refused):
        reading.feed(b"6\r\nabcdef\r\n")
    assert request.upload is not None
    assert request.upload.refusal is not None
    assert request.upload.refusal.status == 413


def test_chunks_in_http_1_0_are_refused() -> None:
    with pytest.raises(Refused):
        parsed(b"POST /v1/x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


def test_one_parser_reads_the_answers_of_a_connection_one_after_the_other() -> None:
    reading = ReplyParser()
    for status in (200, 404):
        reading.begin(head_only=False, max_capture_bytes=100)
        assert not reading.started
        reading.feed(b"HTTP/1.1 %d Because\r\nContent-Length: 2\r\n\r\nok" % status)
        assert (reading.head.status, reading.head.reason, reading.body, reading.done) == (
            status,
            b"Because",
            [b"ok"],
            True,
        )
        assert reading.keep_alive


def test_after_the_answer_to_head_a_connection_is_not_used_again() -> None:
    assert not reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", head_only=True).keep_alive


# -- what is held, and for whom --


def head(size: int, name: bytes = b"Content-Length: %d") -> bytes:
    return b"POST /v1/x HTTP/1.1\r\n" + name % size + b"\r\n\r\n"


def test_a_body_is_not_taken_in_for_whom_the_head_does_not_let_in() -> None:
    def refuse(head: Head) -> None:
        raise Refused(401, "missing_key", head.path.decode())

    for sent in (head(20_000), b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" + b"x" * 20_000):
        held = Held()
        reading = RequestParser(
            max_header_bytes=1000,
            max_body_bytes=1 << 20,
            hold=lambda _: 1 << 20,
            clock=lambda: 5.0,
            admit=refuse,
            held=held,
        )
        with pytest.raises(Refused, match="/v1/x"):
            reading.feed(sent)
        assert (held.taken, list(reading.requests)) == (0, [])


def test_all_connections_share_what_may_be_held_and_the_rest_passes_as_it_comes() -> None:
    held = Held(1000)

    def reading() -> RequestParser:
        return RequestParser(
            max_header_bytes=1000, max_body_bytes=9000, hold=lambda _: 9000, clock=lambda: 5.0, held=held
        )

    first, second = reading(), reading()
    first.feed(head(900) + b"x" * 900)
    assert (held.taken, first.requests[0].held) == (900, 900)
    second.feed(head(300) + b"y" * 200)
    assert (held.taken, held.refused) == (900, 1)
    upload = second.requests[0].upload
    assert upload is not None
    assert (upload.length, upload.take()) == (300, b"y" * 200)
    second.feed(b"z" * 100)
    assert (upload.take(), upload.done, upload.size) == (b"z" * 100, True, 300)
    first.done_with(first.requests.popleft())
    assert held.taken == 0
    first.feed(head(900) + b"x" * 500)
    assert held.taken == 500
    first.release()
    assert held.taken == 0
