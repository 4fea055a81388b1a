"""Bytes to requests and responses, however they are cut, and refusals where two readers could disagree."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, refusal_bytes
from daemon.tap.request import Head, Held

POST = b"POST /v1/x?q=1 HTTP/1.1\r\nHost: tap\r\nAuthorization: Bearer k\r\nContent-Length: 4\r\n\r\nbody"


def parser(**limits: int) -> RequestParser:
    hold = limits.pop("hold", 1000)
    told = {"max_header_bytes": 1000, "max_body_bytes": 1000, **limits}
    return RequestParser(**told, hold=lambda target: hold, clock=lambda: 5.0)


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


def test_a_refusal_to_head_has_no_body() -> None:
    whole = refusal_bytes(Refused(404, "unknown_path", "no"))
    assert (
        refusal_bytes(Refused(404, "unknown_path", "no"), head_only=True)
        == whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    )


def test_an_upload_that_breaks_its_limit_says_so_to_whoever_passes_it_on() -> None:
    reading = parser(hold=4, max_body_bytes=10)
    reading.feed(b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n")
    (request,) = reading.requests
    with pytest.raises(Refused):
        reading.feed(b"6\r\nabcdef\r\n")
    assert request.upload is not None
    assert request.upload.refusal is not None
    assert request.upload.refusal.status == 413


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
