"""Answers of an engine, and how often something holds of them."""

import random

import pytest

from actors.gate.asking import Shares, answer_of


def drawn(rng: random.Random, rate: float, count: int = 64) -> list[bool]:
    return [rng.random() < rate for _ in range(count)]


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.3, 0.5])
def test_equal_versions_break_a_limit_in_no_more_of_200_comparisons_than_stated(rate):
    rng = random.Random(rate)
    broken = sum(Shares.of(drawn(rng, rate), drawn(rng, rate), 0.99).rose(0.05) for _ in range(200))
    assert broken <= 2  # 0.5 % stated: one expected


def test_a_version_that_does_it_much_more_often_is_found():
    rng = random.Random(1)
    found = sum(Shares.of(drawn(rng, 0.4), drawn(rng, 0.05), 0.99).rose(0.05) for _ in range(100))
    assert found >= 95


def test_a_rise_within_the_limit_breaks_nothing_however_sure():
    shares = Shares.of([True] * 40 + [False] * 960, [False] * 1000, 0.99)
    assert shares.difference.low > 0
    assert not shares.rose(0.05)


def test_an_answer_is_read_with_its_calls_length_and_surprise():
    call = {"function": {"name": "book", "arguments": '{"to": "Oslo"}'}, "id": "c"}
    logprobs = {"content": [{"logprob": -0.5}, {"logprob": -1.5}]}
    body = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "length", "logprobs": logprobs}]}
    answer = answer_of(body)
    assert answer is not None
    assert (answer.calls[0].name, answer.tokens, answer.surprisal, answer.cut) == ("book", 2, 1.0, True)


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": "hello"}]}])
def test_what_is_no_completion_is_no_answer(body):
    assert answer_of(body) is None
