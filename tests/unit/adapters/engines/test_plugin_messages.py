"""What the plug-in tells of the tokens of /v1/messages, on stand-ins for vLLM's classes.

`tests/vllm` has the real ones."""

import json
import math
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.engines.vllm_plugin.evolved_vllm.messages import give_tokens

pytestmark = pytest.mark.anyio
Classes = tuple[type[Any], type[Any], type[Any]]
STREAM = ["event: message_start\ndata: {}\n\n", 'event: message_stop\ndata: {"type":"message_stop"}\n\n']
PIECES = [((4,), {4: -0.5}, None), ((5,), {9: -0.1, 5: -2.0}, [("7", 0, 2)])]
TOLD = {
    "prompt_token_ids": [1, 2], "token_ids": [4, 5], "logprobs": [-0.5, -2.0],
    "weight_versions": [{"version": "7", "start": 0, "end": 2}],
}  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def classes() -> Classes:
    class Message:
        model_fields = ("id", "content")

        def __init__(self, **fields: Any) -> None:
            self.__dict__ |= fields

    class Chat:
        def to_sampling_params(self) -> SimpleNamespace:
            return SimpleNamespace(logprobs=None)

    class Serving:
        """`outputs` are what its engine gives."""

        outputs: list[SimpleNamespace] = []
        sampled_with: Any = "nothing"

        async def create_messages(self, request: Any, raw_request: Any = None) -> Any:
            self.sampled_with = Chat().to_sampling_params().logprobs
            if request.stream:
                return self.as_events(self.chat_completion_stream_generator(Chat(), self.engine()))
            await self.chat_completion_full_generator(Chat(), self.engine())
            return Message(id="msg_1", content=["hi"])

        async def engine(self) -> AsyncIterator[SimpleNamespace]:
            for output in self.outputs:
                yield output

        async def chat_completion_full_generator(self, request: Any, outputs: Any) -> None:
            async for _ in outputs:
                pass

        async def chat_completion_stream_generator(self, request: Any, outputs: Any) -> AsyncIterator[Any]:
            async for output in outputs:
                yield output

        async def as_events(self, chunks: Any) -> AsyncIterator[str]:
            yield STREAM[0]
            async for _ in chunks:
                pass
            yield STREAM[1]

    return Serving, Chat, Message


def output(ids: tuple[int, ...], entry: dict[int, float], versions: Any) -> SimpleNamespace:
    logprobs = [{token: SimpleNamespace(logprob=value) for token, value in entry.items()}]
    spans = [SimpleNamespace(version=version, start=start, end=end) for version, start, end in versions or ()]
    piece = SimpleNamespace(token_ids=ids, logprobs=logprobs, weight_versions=spans or None)
    return SimpleNamespace(prompt_token_ids=[1, 2], outputs=[piece])


class Raw:
    def __init__(self, body: Any) -> None:
        self.body = body

    async def json(self) -> Any:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


async def answer(classes: Classes, body: Any, pieces: Any = PIECES) -> tuple[Any, Any]:
    """(what it says, the log-probs that it was sampled with)"""
    serving = classes[0]()
    serving.outputs = [output(*piece) for piece in pieces]
    stream = isinstance(body, dict) and body.get("stream", False)
    got = await serving.create_messages(SimpleNamespace(stream=stream), Raw(body))
    if stream:
        got = [event async for event in got]
    return got, serving.sampled_with


async def test_a_plain_answer_has_its_tokens_in_one_field_more(classes: Classes) -> None:
    give_tokens(*classes)
    give_tokens(*classes)
    # In one piece, as vLLM does it.
    whole = output((4,), {4: -0.5}, [("7", 0, 2)])
    whole.outputs[0].token_ids = (4, 5)
    whole.outputs[0].logprobs.append({9: SimpleNamespace(logprob=-0.1), 5: SimpleNamespace(logprob=-2.0)})
    serving = classes[0]()
    serving.outputs = [whole]
    got = await serving.create_messages(SimpleNamespace(stream=False), Raw({"evolved_tokens": True}))
    assert (got.id, got.content, got.evolved_tokens) == ("msg_1", ["hi"], TOLD)
    assert serving.sampled_with == 0


async def test_a_stream_has_them_in_one_event_before_its_last_and_is_otherwise_the_same(classes: Classes) -> None:
    give_tokens(*classes)
    events, sampled_with = await answer(classes, {"evolved_tokens": True, "stream": True})
    assert [events[0], events[-1], len(events)] == [*STREAM, 3]
    name, data = events[1].split("\n")[:2]
    assert (name, json.loads(data.removeprefix("data: "))) == (
        "event: evolved_tokens",
        {"type": "evolved_tokens", **TOLD},
    )
    assert sampled_with == 0


@pytest.mark.parametrize(
    "body", [{}, {"evolved_tokens": False}, {"evolved_tokens": 1}, [], ValueError("no JSON")], ids=str
)
async def test_who_does_not_ask_is_answered_as_ever(classes: Classes, body: Any) -> None:
    give_tokens(*classes)
    got, sampled_with = await answer(classes, body)
    assert (type(got), sampled_with) == (classes[2], None)
    if isinstance(body, dict):
        assert (await answer(classes, {**body, "stream": True}))[0] == STREAM


@pytest.mark.parametrize(
    "pieces",
    [[], [((4,), {}, None)], [((4,), {6: -1.0}, None)], [((4,), {4: -math.inf}, None)], [((4, 5), {4: -1.0}, None)]],
    ids=["none", "no log-prob", "of another token", "infinite", "too few"],
)
async def test_an_answer_does_not_fail_for_tokens_that_are_odd(classes: Classes, pieces: Any) -> None:
    give_tokens(*classes)
    assert (await answer(classes, {"evolved_tokens": True, "stream": True}, pieces))[0] == STREAM
    assert type((await answer(classes, {"evolved_tokens": True}, pieces))[0]) is classes[2]


async def test_a_call_beside_one_that_asks_is_not_sampled_with_log_probs(classes: Classes) -> None:
    give_tokens(*classes)
    await answer(classes, {"evolved_tokens": True})
    assert classes[1]().to_sampling_params().logprobs is None


def test_a_vllm_that_is_made_otherwise_is_left_as_it_is(classes: Classes) -> None:
    before = classes[0].create_messages
    with pytest.raises(AttributeError):
        give_tokens(classes[0], SimpleNamespace, classes[2])
    assert classes[0].create_messages is before
