"""What is held of bodies. How requests are read, and that nobody's body is taken in before a key: `tests/hostile`."""

import pytest

from daemon.tap.body_budget import SMALL, BodyBudget
from daemon.tap.errors import Refused
from daemon.tap.http import RequestParser, refusal_bytes

HEAD = b"POST /v1/x HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST /v1/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = 2 * SMALL


def parser(budget: BodyBudget) -> RequestParser:
    return RequestParser(max_body_bytes=8 * SMALL, clock=lambda: 5.0, budget=budget)


def test_a_refusal_to_head_has_no_body() -> None:
    refusal = Refused(404, "unknown_path", "no")
    assert refusal_bytes(refusal, head_only=True) == refusal_bytes(refusal).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def test_large_bodies_wait_for_room_in_order_and_small_ones_do_not() -> None:
    budget, told = BodyBudget(3 * SMALL), list[str]()
    first, second, third, small = (parser(budget) for _ in range(4))
    second.on_room, third.on_room = (lambda: told.append("second")), (lambda: told.append("third"))
    for one in (first, second, third):
        one.feed(HEAD % LARGE)
    assert ([one.waits for one in (first, second, third)], budget.taken) == ([False, True, True], LARGE)
    small.feed(HEAD % SMALL + b"x" * SMALL)
    first.feed(b"x" * LARGE)
    assert (len(small.requests), len(first.requests), told) == (1, 1, [])
    budget.give(first.requests.popleft().held)
    assert (told, budget.taken) == (["second"], LARGE)
    second.release()  # its client has left
    assert (told, budget.taken) == (["second", "third"], LARGE)
    third.feed(b"x" * LARGE)
    budget.give(third.requests.popleft().held)
    assert budget.taken == 0


def test_who_leaves_while_he_waits_keeps_nobody_waiting() -> None:
    budget = BodyBudget(3 * SMALL)
    first, second, third = (parser(budget) for _ in range(3))
    for one, size in ((first, LARGE), (second, LARGE), (third, SMALL + 1)):
        one.feed(HEAD % size)
    second.release()
    assert third.waits, "there is no room for it"
    first.release()
    assert (third.waits, budget.taken) == (False, SMALL + 1)


def test_a_body_in_chunks_that_finds_no_room_to_grow_is_refused_at_once() -> None:
    budget = BodyBudget(3 * SMALL)
    first, second = parser(budget), parser(budget)
    first.feed(HEAD % LARGE)
    piece = b"%x\r\n%b\r\n" % (SMALL, b"x" * SMALL)
    second.feed(CHUNKED + piece)
    assert budget.taken == LARGE
    with pytest.raises(Refused) as refusal:
        second.feed(piece)
    assert (refusal.value.status, refusal.value.code) == (503, "no_room")
    second.release()
    assert budget.taken == LARGE
    first.release()
    second = parser(budget)
    second.feed(CHUNKED + piece + piece + b"0\r\n\r\n")
    assert (budget.taken, len(second.requests[0].body)) == (LARGE, LARGE)
