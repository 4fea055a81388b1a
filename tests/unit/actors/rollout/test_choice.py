"""One reader of chat completions, two who ask."""

import pytest

from actors.gate.asking import answer_of
from actors.rollout.errors import EpisodeLost
from actors.rollout.harness.completion import read


def body(function: dict, **choice) -> dict:
    message = {"tool_calls": [{"function": function, "id": "c"}]}
    choice = {"message": message, "token_ids": [7], "logprobs": {"content": [{"logprob": -0.5}]}, **choice}
    return {"choices": [choice], "prompt_token_ids": [1, 2], "usage": {"completion_tokens": 1}}


def test_both_read_the_same_call():
    for arguments, understood in (('{"to": 1}', '{"to": 1}'), (None, "{}")):
        given = body({"name": "book", "arguments": arguments})
        answer, turn = answer_of(given), read(given)
        assert answer.calls == turn.calls
        assert (turn.calls[0].name, turn.calls[0].arguments, turn.calls[0].id) == ("book", understood, "c")


@pytest.mark.parametrize(
    "broken",
    [
        body({"arguments": "{}"}),
        body({"name": None, "arguments": "{}"}),
        body({"name": "book", "arguments": {"to": 1}}),
        body({"name": "book", "arguments": "{}"}, logprobs={"content": [{}]}),
        body({"name": "book", "arguments": "{}"}, logprobs={"content": [{"logprob": "?"}]}),
    ],
)
def test_what_no_engine_means_loses_an_episode_and_is_no_answer_at_the_gate(broken):
    assert answer_of(broken) is None
    with pytest.raises(EpisodeLost) as lost:
        read(broken)
    assert lost.value.reason == "malformed_response"
