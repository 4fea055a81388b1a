"""The plug-in without a vLLM: a worker's waits end, and answers have their tokens, on stand-ins for vLLM's classes.

`tests/vllm` has the real ones, whose log-probs are held to what the engine itself has for them.
"""

import json
import math
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.engines.vllm_plugin.evolved_vllm import checkpoint, loader
from adapters.engines.vllm_plugin.evolved_vllm.messages import give_tokens
from adapters.engines.vllm_plugin.evolved_vllm.responses import give_logprobs
from tests.support import checkpoints

Classes = tuple[type[Any], type[Any], type[Any]]
STREAM = ["event: message_start\ndata: {}\n\n", 'event: message_stop\ndata: {"type":"message_stop"}\n\n']
SPANS = [("7", 0, 2)]
FOUR, FIVE = {4: -0.5}, {9: -0.1, 5: -2.0}
PIECES = [((4,), [FOUR], []), ((5,), [FIVE], SPANS)]
WHOLE = [((4, 5), [FOUR, FIVE], SPANS)]
"""In one piece, as vLLM answers where nothing is streamed."""
TOLD = {
    "prompt_token_ids": [1, 2], "token_ids": [4, 5], "logprobs": [-0.5, -2.0],
    "weight_versions": [{"version": "7", "start": 0, "end": 2}],
}  # fmt: skip


@pytest.fixture
def worker(tmp_path: Path) -> SimpleNamespace:
    served = checkpoints.write(tmp_path / "a", 1)
    config = SimpleNamespace(model=str(served), revision=None)
    return SimpleNamespace(model_runner=None, vllm_config=SimpleNamespace(model_config=config))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def reading(monkeypatch) -> Iterator[tuple[list[str], threading.Event]]:
    """Paths of the checks that have begun, and what they all wait for."""
    begun, go = list[str](), threading.Event()

    def finite(check: checkpoint.Check, _: object) -> None:
        begun.append(check.path)
        go.wait(30.0)

    monkeypatch.setattr(checkpoint.Check, "_finite", finite)
    yield begun, go
    go.set()


def test_a_load_does_not_wait_for_a_check_that_never_ends(worker, tmp_path, monkeypatch, reading):
    monkeypatch.setattr(loader, "_READ_ON", 0.2)
    version = str(checkpoints.write(tmp_path / "b", 2))
    own = loader.Loader(worker)
    assert own.prepare(version, 1)["state"] == "checking"
    asked = time.monotonic()
    answer = own.load(version, 1, False)
    assert answer["state"] == "refused"
    assert "still being read" in answer["reason"]
    assert time.monotonic() - asked < 10.0


def test_who_asks_again_finds_the_check_further_on(worker, tmp_path, reading):
    begun, go = reading
    version, other = (str(checkpoints.write(tmp_path / name, 2)) for name in "bc")
    own = loader.Loader(worker)
    for _ in range(3):
        assert own.prepare(version, 1)["state"] == "checking"
    first = own._check
    go.set()
    assert first is not None
    first.join(10.0)
    assert own.prepare(version, 1)["state"] == "ready"
    assert begun == [version], "read once"
    (Path(version) / "config.json").touch()
    own.prepare(version, 1)
    assert own._check is not first, "what was changed since is read again"
    own.prepare(other, 1)
    assert own._check is not None
    assert own._check.path == other


def test_an_architecture_that_was_never_swapped_is_named_and_the_engine_warns_once(worker, tmp_path, caplog):
    mixed = {"architectures": ["Qwen2ForCausalLM", "MixtralForCausalLM"]}
    assert loader.untried({"architectures": ["Qwen2ForCausalLM"]}) == ""
    assert "MixtralForCausalLM were never tried" in loader.untried(mixed)
    for odd in ({"architectures": []}, {"architectures": "Qwen2ForCausalLM"}, {}):
        assert "an architecture without a name" in loader.untried(odd)
    path = tmp_path / "a" / "config.json"
    path.write_text(path.read_text().replace("Qwen2ForCausalLM", "GemmaForCausalLM"))
    own = loader.Loader(worker)
    for number in range(2):
        own.prepare(str(checkpoints.write(tmp_path / f"v{number}", 2)), 1)
    assert sum("GemmaForCausalLM" in record.getMessage() for record in caplog.records) == 1


@pytest.fixture
def served() -> Classes:
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


def entries(logprobs: list[dict[int, float]]) -> list[dict[int, SimpleNamespace]]:
    """vLLM's entry for each token: its candidates, by id."""
    return [{token: SimpleNamespace(logprob=value) for token, value in entry.items()} for entry in logprobs]


def spans(versions: list[tuple[str, int, int]]) -> list[SimpleNamespace] | None:
    return [SimpleNamespace(version=version, start=start, end=end) for version, start, end in versions] or None


def output(ids: tuple[int, ...], logprobs: list[dict[int, float]], versions: Any) -> SimpleNamespace:
    piece = SimpleNamespace(token_ids=ids, logprobs=entries(logprobs), weight_versions=spans(versions))
    return SimpleNamespace(prompt_token_ids=[1, 2], outputs=[piece])


class Raw:
    def __init__(self, body: Any) -> None:
        self.body = body

    async def json(self) -> Any:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


async def answer(served: Classes, body: Any, pieces: Any = PIECES) -> tuple[Any, Any]:
    """(what it says, the log-probs that it was sampled with)"""
    serving = served[0]()
    serving.outputs = [output(*piece) for piece in pieces]
    stream = isinstance(body, dict) and body.get("stream", False)
    got = await serving.create_messages(SimpleNamespace(stream=stream), Raw(body))
    if stream:
        got = [event async for event in got]
    return got, serving.sampled_with


@pytest.mark.anyio
async def test_a_plain_answer_has_its_tokens_in_one_field_more(served: Classes) -> None:
    give_tokens(*served)
    give_tokens(*served)
    got, sampled_with = await answer(served, {"evolved_tokens": True}, WHOLE)
    assert (got.id, got.content, got.evolved_tokens) == ("msg_1", ["hi"], TOLD)
    assert sampled_with == 0


@pytest.mark.anyio
async def test_a_stream_has_them_in_one_event_before_its_last_and_is_otherwise_the_same(served: Classes) -> None:
    give_tokens(*served)
    events, sampled_with = await answer(served, {"evolved_tokens": True, "stream": True})
    assert [events[0], events[-1], len(events)] == [*STREAM, 3]
    name, data = events[1].split("\n")[:2]
    assert (name, json.loads(data.removeprefix("data: "))) == (
        "event: evolved_tokens",
        {"type": "evolved_tokens", **TOLD},
    )
    assert sampled_with == 0
    assert served[1]().to_sampling_params().logprobs is None, "a call beside it is not sampled with them"


@pytest.mark.parametrize(
    "body", [{}, {"evolved_tokens": False}, {"evolved_tokens": 1}, [], ValueError("no JSON")], ids=str
)
@pytest.mark.anyio
async def test_who_does_not_ask_is_answered_as_ever(served: Classes, body: Any) -> None:
    give_tokens(*served)
    got, sampled_with = await answer(served, body)
    assert (type(got), sampled_with) == (served[2], None)
    if isinstance(body, dict):
        assert (await answer(served, {**body, "stream": True}))[0] == STREAM


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


def piece(classes: Classes, logprobs: list[dict[int, float]]) -> Any:
    last = SimpleNamespace(outputs=[SimpleNamespace(weight_versions=spans(SPANS))])
    (found,) = classes[2](tokens=(4, 5), _accumulated_logprobs=entries(logprobs), last_output=last).output_messages
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
    found = piece(classes, [FOUR, FIVE])
    assert found.logprobs == [-0.5, -2.0]
    assert found.weight_versions == TOLD["weight_versions"]


@pytest.mark.parametrize(
    "logprobs", [[], [FOUR], [FOUR, {6: -1.0}], [FOUR, {5: -math.inf}]],
    ids=["none", "too few", "of another token", "infinite"],
)  # fmt: skip
@pytest.mark.anyio
async def test_no_answer_fails_for_log_probs_that_are_odd_or_for_no_output(
    served: Classes, classes: Classes, logprobs: list[dict[int, float]]
) -> None:
    give_tokens(*served)
    for pieces in ([((4, 5), logprobs, SPANS)], []):
        assert (await answer(served, {"evolved_tokens": True, "stream": True}, pieces))[0] == STREAM
        assert type((await answer(served, {"evolved_tokens": True}, pieces))[0]) is served[2]
    give_logprobs(*classes)
    found = piece(classes, logprobs)
    assert (found.tokens, hasattr(found, "logprobs")) == ([4, 5], False)


def test_a_vllm_that_is_made_otherwise_is_left_as_it_is(served: Classes, classes: Classes) -> None:
    messages, responses = served[0].create_messages, classes[0].to_sampling_params
    with pytest.raises(AttributeError):
        give_tokens(served[0], SimpleNamespace, served[2])
    with pytest.raises(AttributeError):
        give_logprobs(classes[0], classes[1], SimpleNamespace)
    assert (served[0].create_messages, classes[0].to_sampling_params) == (messages, responses)
