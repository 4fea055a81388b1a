"""What the plug-in lays beside the token ids of /v1/responses, on stand-ins for vLLM's classes.

`tests/vllm` has the real ones."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.engines.vllm_plugin.evolved_vllm.responses import give_logprobs

Classes = tuple[type[Any], type[Any], type[Any]]


@pytest.fixture
def classes() -> Classes:
    class Request(SimpleNamespace):
        def to_sampling_params(self) -> SimpleNamespace:
            return SimpleNamespace(logprobs=self.top_logprobs if self.is_include_output_logprobs() else None)

        def is_include_output_logprobs(self) -> bool:
            return self.include

    class Response(SimpleNamespace):
        @classmethod
        def from_request(cls, request: Request, sampling_params: SimpleNamespace) -> "Response":
            return cls(top_logprobs=sampling_params.logprobs)

    class Context(SimpleNamespace):
        @property
        def output_messages(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(tokens=list(self.tokens))]

    return Request, Response, Context


def asked(classes: Classes, *, messages: bool, include: bool = False, top: int = 0) -> tuple[Any, Any]:
    """(log-probs that are sampled with, `top_logprobs` of the answer)"""
    request = classes[0](enable_response_messages=messages, include=include, top_logprobs=top)
    params = request.to_sampling_params()
    return params.logprobs, classes[1].from_request(request, params).top_logprobs


def piece(classes: Classes, logprobs: list[dict[int, float]], tokens: tuple[int, ...] = (4, 5), **said: Any) -> Any:
    entries = [{token: SimpleNamespace(logprob=value) for token, value in entry.items()} for entry in logprobs]
    last = SimpleNamespace(outputs=[SimpleNamespace(weight_versions=said.get("versions"))])
    (found,) = classes[2](tokens=tokens, _accumulated_logprobs=entries, last_output=last).output_messages
    return found


def test_only_who_asks_for_messages_is_sampled_with_log_probs_and_no_answer_says_so(classes: Classes) -> None:
    give_logprobs(*classes)
    assert asked(classes, messages=False) == (None, None)
    assert asked(classes, messages=True) == (0, None)
    assert asked(classes, messages=True, include=True, top=3) == (3, 3)
    assert asked(classes, messages=False, include=True, top=3) == (3, 3)


def test_each_token_has_its_log_prob_and_the_versions_stand_beside(classes: Classes) -> None:
    give_logprobs(*classes)
    give_logprobs(*classes)
    spans = [SimpleNamespace(version="7", start=0, end=2)]
    found = piece(classes, [{4: -0.5}, {9: -0.1, 5: -2.0}], versions=spans)
    assert found.logprobs == [-0.5, -2.0]
    assert found.weight_versions == [{"version": "7", "start": 0, "end": 2}]


@pytest.mark.parametrize(
    "logprobs", [[], [{4: -0.5}], [{4: -0.5}, {6: -1.0}], [{4: -0.5}, {5: -math.inf}]],
    ids=["none", "too few", "of another token", "infinite"],
)  # fmt: skip
def test_an_answer_does_not_fail_for_log_probs_that_are_odd(classes: Classes, logprobs: list[dict[int, float]]) -> None:
    give_logprobs(*classes)
    found = piece(classes, logprobs)
    assert (found.tokens, hasattr(found, "logprobs")) == ([4, 5], False)


def test_a_vllm_that_is_made_otherwise_is_left_as_it_is(classes: Classes) -> None:
    before = classes[0].to_sampling_params
    with pytest.raises(AttributeError):
        give_logprobs(classes[0], classes[1], SimpleNamespace)
    assert classes[0].to_sampling_params is before
