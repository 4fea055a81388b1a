"""One reader of chat completions, two who ask: each is as strict as what it does with the answer demands."""

import pytest

from actors.gate.asking import answer_of
from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.completion import read


def body(function: dict, **choice) -> dict:
    message = {"tool_calls": [{"function": function, "id": "c"}]}
    choice = {"message": message, "token_ids": [7], "logprobs": {"content": [{"logprob": -0.5}]}, **choice}
    return {"choices": [choice], "prompt_token_ids": [1, 2], "usage": {"completion_tokens": 1}}


def test_both_read_the_same_call():
    given = body({"name": "book", "arguments": '{"to": 1}'})
    answer, turn = answer_of(given), read(given)
    assert answer.calls == turn.calls
    assert (turn.calls[0].name, turn.calls[0].arguments, turn.calls[0].id) == ("book", '{"to": 1}', "c")


@pytest.mark.parametrize(
    ("broken", "at_the_gate"),
    [
        (body({"name": "book"}), "{}"),  # a call without arguments counts as empty there
        (body({"name": "book", "arguments": None}), "{}"),
        (body({"arguments": "{}"}), None),
        (body({"name": None, "arguments": "{}"}), None),
        (body({"name": "book", "arguments": {"to": 1}}), None),
        (body({"name": "book", "arguments": "{}"}, logprobs={"content": [{}]}), None),
        (body({"name": "book", "arguments": "{}"}, logprobs={"content": [{"logprob": "?"}]}), None),
    ],
)
def test_what_no_engine_means_loses_an_episode_and_is_no_answer_at_the_gate(broken, at_the_gate):
    answer = answer_of(broken)
    assert (answer and answer.calls[0].arguments) == at_the_gate
    with pytest.raises(EpisodeLost) as lost:
        read(broken)
    assert lost.value.reason == "malformed_response"
