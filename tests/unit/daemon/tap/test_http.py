"""What is held of bodies. How requests are read, and that nobody's body is taken in before a key: `tests/hostile`."""

from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, refusal_bytes
from daemon.tap.request import Held

HEAD = b"POST /v1/x HTTP/1.1\r\nContent-Length: %d\r\n\r\n"


def parser(held: Held) -> RequestParser:
    return RequestParser(
        max_header_bytes=1000, max_body_bytes=1 << 20, hold=lambda _: 1 << 20, clock=lambda: 5.0, held=held
    )


def test_a_refusal_to_head_has_no_body() -> None:
    refusal = Refused(404, "unknown_path", "no")
    assert refusal_bytes(refusal, head_only=True) == refusal_bytes(refusal).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def test_all_connections_share_what_may_be_held_and_the_rest_passes_as_it_comes() -> None:
    held = Held(1000)
    first, second = parser(held), parser(held)
    first.feed(HEAD % 900 + b"x" * 900)
    assert (held.taken, first.requests[0].held) == (900, 900)
    second.feed(HEAD % 300 + b"y" * 200)
    assert (held.taken, held.refused) == (900, 1)
    upload = second.requests[0].upload
    assert upload is not None
    assert (upload.length, upload.take()) == (300, b"y" * 200)
    second.feed(b"z" * 100)
    assert (upload.take(), upload.done, upload.size) == (b"z" * 100, True, 300)
    first.done_with(first.requests.popleft())
    assert held.taken == 0
    first.feed(HEAD % 900 + b"x" * 500)
    assert held.taken == 500
    first.release()
    assert held.taken == 0
