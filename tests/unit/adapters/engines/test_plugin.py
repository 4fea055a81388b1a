"""The plug-in without a vLLM: a worker's waits end, and no answer fails for what an engine gives of its tokens.

That answers have their tokens, and are otherwise the same, `tests/vllm/test_tap.py` sees on the real one.
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

from adapters.engines.vllm_plugin.evolved_vllm import checkpoint, loader, messages, responses
from tests.support import checkpoints

STREAM = ["event: message_start\ndata: {}\n\n", 'event: message_stop\ndata: {"type":"message_stop"}\n\n']
FOUR, FIVE = {4: -0.5}, {9: -0.1, 5: -2.0}
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
    go.set()
    own._check.join(10.0)
    assert own.prepare(version, 1)["state"] == "ready"
    (Path(version) / "config.json").touch()
    for path in (version, other):
        own.prepare(path, 1)
        own._check.join(10.0)
    assert begun == [version, version, other], "read once, and again what was changed since"


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


def output(ids: tuple[int, ...], logprobs: list[dict[int, float]], *, last: bool = True) -> SimpleNamespace:
    """A piece of an answer as vLLM has it: with each token its candidates, by id."""
    entries = [{token: SimpleNamespace(logprob=value) for token, value in entry.items()} for entry in logprobs]
    spans = [SimpleNamespace(version="7", start=0, end=2)] if last else None
    piece = SimpleNamespace(token_ids=ids, logprobs=entries, weight_versions=spans)
    return SimpleNamespace(prompt_token_ids=[1, 2], outputs=[piece])


async def streamed(*pieces: SimpleNamespace) -> list[str]:
    """The events of a message while whose making an engine gave these pieces."""
    taken = messages._Taken()
    for piece in pieces:
        taken.take(piece)

    async def events() -> AsyncIterator[str]:
        for event in STREAM:
            yield event

    return [event async for event in messages._beside(events(), taken)]


def beside(logprobs: list[dict[int, float]]) -> SimpleNamespace:
    """The one piece of a response whose tokens were sampled with these."""
    last, piece = output((4, 5), logprobs), SimpleNamespace(tokens=[4, 5])
    context = SimpleNamespace(_accumulated_logprobs=last.outputs[0].logprobs, last_output=last)
    responses._beside(piece, context)
    return piece


@pytest.mark.anyio
async def test_what_an_engine_gave_is_told_with_the_versions_beside() -> None:
    begun, told, ended = await streamed(output((4,), [FOUR], last=False), output((5,), [FIVE]))
    assert [begun, ended] == STREAM
    name, data = told.split("\n", 1)
    assert name == "event: evolved_tokens"
    assert json.loads(data.removeprefix("data: ")) == {"type": "evolved_tokens", **TOLD}
    piece = beside([FOUR, FIVE])
    assert (piece.logprobs, piece.weight_versions) == (TOLD["logprobs"], TOLD["weight_versions"])


@pytest.mark.parametrize(
    "logprobs", [[], [FOUR], [FOUR, {6: -1.0}], [FOUR, {5: -math.inf}]],
    ids=["none", "too few", "of another token", "infinite"],
)  # fmt: skip
@pytest.mark.anyio
async def test_no_answer_fails_for_log_probs_that_are_odd_or_for_no_output(logprobs: list[dict[int, float]]) -> None:
    assert await streamed(output((4, 5), logprobs)) == await streamed() == STREAM
    assert vars(beside(logprobs)) == {"tokens": [4, 5]}


def raw(body: Any) -> SimpleNamespace:
    """A request, whose body is read once more."""

    async def json() -> Any:
        if isinstance(body, Exception):
            raise body
        return body

    return SimpleNamespace(json=json)


class Message:
    model_fields = ()


class Serving:
    """vLLM's, where the engine gives nothing."""

    chat_completion_full_generator = chat_completion_stream_generator = to_sampling_params = None

    async def create_messages(self, request: Any, raw_request: Any = None) -> Message:
        return Message()


NOBODY = [{}, {"evolved_tokens": False}, {"evolved_tokens": 1}, [], ValueError("no JSON")]


@pytest.mark.parametrize(("body", "asks"), [({"evolved_tokens": True}, True), *((body, False) for body in NOBODY)])
@pytest.mark.anyio
async def test_where_nothing_is_given_or_asked_for_an_answer_is_what_it_was(body: Any, asks: bool) -> None:
    serving = type("Own", (Serving,), {})
    for _ in range(2):
        messages.give_tokens(serving, type("Chat", (Serving,), {}), Message)
    assert type(await serving().create_messages(None, raw(body))) is Message
    assert await messages._asked(raw(body)) == asks


def test_a_vllm_that_is_made_otherwise_is_left_as_it_is() -> None:
    before = dict(vars(Serving))
    for give in (messages.give_tokens, responses.give_logprobs):
        with pytest.raises(AttributeError):
            give(Serving, SimpleNamespace, Message)
    assert dict(vars(Serving)) == before


def responses_classes() -> tuple[type[Any], type[Any], type[Any]]:
    """Request, response and context as vLLM has them."""

    class Request:
        def __init__(self, messages: bool, *, asks: bool = False) -> None:
            self.enable_response_messages, self.asks = messages, asks

        def to_sampling_params(self) -> SimpleNamespace:
            return SimpleNamespace(logprobs=3 if self.asks else None)

        def is_include_output_logprobs(self) -> bool:
            return self.asks

    class Response:
        @classmethod
        def from_request(cls, request: Any) -> SimpleNamespace:
            return SimpleNamespace(top_logprobs=request.to_sampling_params().logprobs)

    class Context:
        def __init__(self, *pieces: SimpleNamespace) -> None:
            self.pieces, self.last_output = pieces, output((4, 5), [FOUR, FIVE])
            self._accumulated_logprobs = self.last_output.outputs[0].logprobs

        @property
        def output_messages(self) -> list[SimpleNamespace]:
            return list(self.pieces)

    return Request, Response, Context


def test_a_response_has_log_probs_beside_its_messages_and_shows_them_nowhere_else() -> None:
    request, response, context = responses_classes()
    for _ in range(2):
        responses.give_logprobs(request, response, context)
    sampled = {
        (messages, asks): (
            request(messages, asks=asks).to_sampling_params().logprobs,
            response.from_request(request(messages, asks=asks)).top_logprobs,
        )
        for messages in (False, True)
        for asks in (False, True)
    }
    assert sampled == {
        (False, False): (None, None), (False, True): (3, 3), (True, False): (0, None), (True, True): (3, 3),
    }  # fmt: skip
    (one,) = context(SimpleNamespace(tokens=[4, 5])).output_messages
    assert one.logprobs == TOLD["logprobs"]
    several = context(SimpleNamespace(tokens=[4]), SimpleNamespace(tokens=[5])).output_messages
    assert not [piece for piece in several if hasattr(piece, "logprobs")], "whose they are cannot be told"


@pytest.mark.anyio
@pytest.mark.parametrize("asked", [True, False])
async def test_a_message_has_its_tokens_where_they_were_asked_for(asked: bool) -> None:
    class Chat:
        def to_sampling_params(self) -> SimpleNamespace:
            return SimpleNamespace(logprobs=None)

    class Message(SimpleNamespace):
        model_fields = ("id",)

    class Serving:
        async def create_messages(self, request: Any, raw_request: Any = None) -> Any:
            self.logprobs = Chat().to_sampling_params().logprobs
            await self.chat_completion_full_generator(Chat(), self.engine())
            return Message(id="msg_1")

        async def engine(self) -> AsyncIterator[SimpleNamespace]:
            yield output((4, 5), [FOUR, FIVE])

        async def chat_completion_full_generator(self, request: Any, outputs: Any) -> None:
            async for _ in outputs:
                pass

        async def chat_completion_stream_generator(self, request: Any, outputs: Any) -> AsyncIterator[Any]:
            async for piece in outputs:
                yield piece

    async def body() -> dict[str, bool]:
        return {"evolved_tokens": asked}

    for _ in range(2):
        messages.give_tokens(Serving, Chat, Message)
    serving = Serving()
    got = await serving.create_messages(SimpleNamespace(stream=False), SimpleNamespace(json=body))
    assert (getattr(got, "evolved_tokens", None), serving.logprobs) == ((TOLD, 0) if asked else (None, None))
