"""New trajectories go by weight; the calls of one trajectory stay with one engine."""

from collections import Counter

import pytest

from daemon.tap.request import Head, Request
from daemon.tap.router import Router
from daemon.tap.settings import Address
from daemon.tap.upstream import Upstream


def engine(name: str, weight: float = 1.0) -> Upstream:
    return Upstream(name, Address("e", 1), weight=weight, tls=None, clock=lambda: 0.0)


def router(*weights: float) -> Router:
    return Router([engine(f"e{n}", weight) for n, weight in enumerate(weights)])


def asked(body: bytes = b"{}", **headers: str) -> Request:
    lines = [(name.replace("_", "-").encode(), name.encode(), value.encode()) for name, value in headers.items()]
    path = b"/v1/chat/completions"
    return Request(Head(b"POST", path, path, lines), body, 1.0)


def talk(*texts: str) -> bytes:
    roles = ("user", "assistant")
    said = ",".join(f'{{"role": "{roles[n % 2]}", "content": "{text}"}}' for n, text in enumerate(texts))
    return f'{{"model": "m", "messages": [{said}]}}'.encode()


def test_new_trajectories_spread_by_weight() -> None:
    three = router(3.0, 1.0)
    assert Counter(three.choose(asked(talk("hi"))).name for _ in range(40)) == {"e0": 30, "e1": 10}


def test_an_explicit_trajectory_stays() -> None:
    two = router(1.0, 1.0)
    for name in "abcd":
        assert len({two.choose(asked(x_evolved_trajectory=name)).name for _ in range(5)}) == 1


def test_a_tool_result_goes_where_its_call_was_made() -> None:
    two = router(1.0, 1.0)
    for call, made in (("call_1", two.upstreams[1]), ("call_2", two.upstreams[0])):
        two.learn(b'{"id":"chatcmpl-9","choices":[{"message":{"tool_calls":[{"id":"%b"}]}}]}' % call.encode(), made)
        body = b'{"messages":[{"role":"tool","tool_call_id":"%b","content":"3"}]}' % call.encode()
        assert {two.choose(asked(body)) for _ in range(3)} == {made}


def test_a_response_goes_where_the_one_before_it_was_made() -> None:
    two = router(1.0, 1.0)
    two.learn(b'{"id":"resp_1"}', two.upstreams[1])
    assert {two.choose(asked(b'{"previous_response_id": "resp_1"}')).name for _ in range(3)} == {"e1"}


def test_a_conversation_without_ids_stays_by_its_opening() -> None:
    two = router(1.0, 1.0)
    for number in range(6):
        first = two.choose(asked(talk(f"wish {number}")))
        assert two.choose(asked(talk(f"wish {number}", "answer", "more"))) is first


def test_a_sick_engine_gets_nothing_and_its_trajectories_move() -> None:
    two = router(1.0, 1.0)
    first = two.choose(asked(x_evolved_trajectory="t"))
    first.healthy = False
    other = two.choose(asked(x_evolved_trajectory="t"))
    assert other is not first
    first.healthy = True
    assert two.choose(asked(x_evolved_trajectory="t")) is other


def test_weight_zero_takes_nothing_new() -> None:
    two = router(0.0, 1.0)
    assert {two.choose(asked(talk(str(n)))).name for n in range(10)} == {"e1"}


def test_when_all_are_sick_one_is_tried_all_the_same() -> None:
    two = router(1.0, 1.0)
    for one in two.upstreams:
        one.healthy = False
    assert two.choose(asked(talk("hi"))) in two.upstreams


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.tap.router._REMEMBERED", 10)
    two = router(1.0, 1.0)
    for number in range(1000):
        two.choose(asked(x_evolved_trajectory=str(number)))
    assert len(two._routes) == 10
