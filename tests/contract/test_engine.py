"""What every engine promises. Runs on the embedded engine here, and on a real vLLM in tests/vllm/test_contract.py."""

import json
import shutil
from pathlib import Path

import anyio
import httpx
import numpy as np
import pytest

from actors.messages import VersionSpan
from actors.ports.engines import Generation
from actors.ports.errors import EngineRejected
from adapters.engines.swap import perform
from adapters.engines.swap_files import SwapJob
from adapters.engines.vllm import VllmEngine
from tests.support import checkpoints
from tests.support.engines import embedded_engine
from tests.support.epochs import seen_epoch

pytestmark = [pytest.mark.anyio, pytest.mark.torch]
SAID = "".join(checkpoints.CALL)
HELLO = [{"role": "user", "content": "Hello, who is there?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find flights.",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
}
TOKENS = {"logprobs": True, "return_token_ids": True, "return_weight_versions": True}


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """URL of the engine, and the directory with the checkpoints."""
    directory = tmp_path_factory.mktemp("engine") / "checkpoints"
    checkpoints.write_all(directory)
    with embedded_engine(directory / "a", "--dev-mode", "--max-num-seqs", "32") as url:
        yield url, directory


class Bench:
    """The engine, and the means to have it serve a checkpoint."""

    def __init__(self, engine: VllmEngine, url: str, directory: Path) -> None:
        self.engine, self.url, self.directory = engine, url, directory

    async def serve(self, name: str, version: int) -> None:
        outcome = await perform(self.job(name, version), self.engine)
        assert outcome.result == "swapped", outcome

    def job(self, name: str, version: int, directory: Path | None = None) -> SwapJob:
        path = (directory or self.directory) / name
        return SwapJob(
            engine=self.url, path=str(path), version=version, result="", last_good=str(self.directory / "a"),
            last_version=1, epoch=seen_epoch(self.url),
        )  # fmt: skip

    async def prompt(self, text: str = "Hello, who is there?") -> list[int]:
        return await self.engine.render([{"role": "user", "content": text}])


@pytest.fixture
async def bench(place):
    """The engine, serving `a` as version 1."""
    url, directory = place
    async with VllmEngine(url) as engine:
        bench = Bench(engine, url, directory)
        await bench.serve("a", 1)
        yield bench
        await engine.resume()


def spans(*bounds: tuple[int, int, int]) -> tuple[VersionSpan, ...]:
    return tuple(VersionSpan(*bound) for bound in bounds)


def close(ours: list[float], theirs: list[float], tolerance: float = 1e-3) -> bool:
    return len(ours) == len(theirs) and bool(np.allclose(ours, theirs, rtol=0, atol=tolerance))


async def test_generate_gives_a_log_prob_and_a_version_for_each_token(bench):
    made = await bench.engine.generate(await bench.prompt(), max_tokens=12, seed=3, ignore_eos=True)
    assert len(made.token_ids) == len(made.logprobs) == 12
    assert all(value <= 0.0 for value in made.logprobs)
    assert made.versions == spans((1, 0, 12))
    assert made.finish_reason == "length"
    assert "vllm:generation_tokens_total" in await bench.engine.metrics()


async def test_log_probs_of_what_was_sampled_agree_with_scoring_it(bench):
    prompt = await bench.prompt()
    made = await bench.engine.generate(prompt, max_tokens=16, temperature=0.7, seed=5, ignore_eos=True)
    scores = await bench.engine.log_probs(prompt + made.token_ids)
    assert scores.dtype == np.float32
    assert len(scores) == len(prompt) + 16
    assert np.isnan(scores[0])
    assert close(scores[len(prompt) :].tolist(), made.logprobs)


async def test_a_seed_gives_the_same_tokens_whatever_else_runs(bench):
    prompt = await bench.prompt()
    alone = await bench.engine.generate(prompt, max_tokens=20, seed=11, ignore_eos=True)
    made: list[Generation] = []

    async def one(seed: int) -> None:
        made.append(await bench.engine.generate(prompt, max_tokens=20, seed=seed, ignore_eos=True))

    async with anyio.create_task_group() as group:
        for seed in (11, 12, 13, 14):
            group.start_soon(one, seed)
    assert sum(other.token_ids == alone.token_ids for other in made) == 1


async def test_a_chat_is_sampled_from_what_render_gives(bench):
    body = {"messages": HELLO, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **TOKENS}
    answer = await bench.engine.chat(body)
    prompt = await bench.engine.render(HELLO)
    assert answer["prompt_token_ids"] == prompt
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert answer["usage"]["completion_tokens"] == 8
    chat = bench.engine.generation(answer)
    direct = await bench.engine.generate(prompt, max_tokens=8, temperature=0.0, ignore_eos=True)
    assert chat.token_ids == direct.token_ids
    assert close(chat.logprobs, direct.logprobs)


async def streamed(url: str, body: dict) -> list[dict]:
    events = []
    async with (
        httpx.AsyncClient(base_url=url, timeout=30) as http,
        http.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(line[len("data: ") :])
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


async def test_a_stream_adds_up_to_the_whole_answer(bench):
    body = {"messages": HELLO, "max_tokens": 30, "temperature": 0, "ignore_eos": True, **TOKENS}
    whole = await bench.engine.chat(body)
    events = await streamed(bench.url, {**body, "model": "tiny", "stream_options": {"include_usage": True}})
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert events[-1]["usage"]["completion_tokens"] == 30
    deltas = [event["choices"][0] for event in events[:-1]]
    choice = whole["choices"][0]
    assert "".join(delta["delta"].get("content") or "" for delta in deltas) == choice["message"]["content"]
    assert [i for delta in deltas for i in delta.get("token_ids") or ()] == choice["token_ids"]
    logprobs = [entry["logprob"] for delta in deltas for entry in (delta.get("logprobs") or {"content": ()})["content"]]
    assert close(logprobs, [entry["logprob"] for entry in choice["logprobs"]["content"]])
    assert deltas[-1]["finish_reason"] == "length"
    said = deltas[-1].get("weight_versions")
    assert said == choice.get("weight_versions")
    assert said in ([{"version": "1", "start": 0, "end": 30}], None)  # vLLM 0.32 does not say


async def test_a_tool_call_is_read_and_renders_again_to_the_ids_that_were_sampled(bench):
    await bench.serve("scripted", 3)
    answer = await bench.engine.chat({"messages": HELLO, "tools": [TOOL], "max_tokens": 30, **TOKENS})
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "search", "arguments": '{"to": "Oslo"}'}
    next_turn = [*HELLO, choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "no flights"}]
    ids = answer["prompt_token_ids"] + choice["token_ids"]
    assert (await bench.engine.render(next_turn, [TOOL]))[: len(ids)] == ids


async def test_a_streamed_tool_call_is_the_same_call(bench):
    await bench.serve("scripted", 3)
    body = {"model": "tiny", "messages": HELLO, "tools": [TOOL], "max_tokens": 30, **TOKENS}
    deltas = [event["choices"][0] for event in await streamed(bench.url, body)]
    calls = [call for delta in deltas for call in delta["delta"].get("tool_calls") or ()]
    assert {call["index"] for call in calls} == {0}
    assert "".join(call["function"].get("name") or "" for call in calls) == "search"
    assert "".join(call["function"].get("arguments") or "" for call in calls) == '{"to": "Oslo"}'
    assert len([i for delta in deltas for i in delta.get("token_ids") or ()]) == len(checkpoints.CALL) + 1
    assert deltas[-1]["finish_reason"] == "tool_calls"
    assert not "".join(delta["delta"].get("content") or "" for delta in deltas)


async def test_tool_choice_none_leaves_the_call_in_the_text(bench):
    await bench.serve("scripted", 3)
    body = {"messages": HELLO, "tools": [TOOL], "tool_choice": "none", "max_tokens": 30}
    choice = (await bench.engine.chat(body))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == SAID


async def test_a_stop_text_ends_the_answer_before_it(bench):
    await bench.serve("scripted", 3)
    body = {"messages": HELLO, "max_tokens": 30, "stop": ["Oslo"], **TOKENS}
    choice = (await bench.engine.chat(body))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == SAID[: SAID.index("Oslo")]
    events = await streamed(bench.url, {**body, "model": "tiny"})
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    assert text == choice["message"]["content"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": "hello"}, 400),
        ({"messages": HELLO, "temperature": -1}, 400),
        ({"messages": HELLO, "max_tokens": 100_000}, 400),
        ({"messages": HELLO, "model": "another"}, 404),
    ],
)
async def test_bad_requests_get_an_error_in_openai_form(bench, body, status):
    async with httpx.AsyncClient(base_url=bench.url) as http:
        response = await http.post("/v1/chat/completions", json={"model": "tiny", **body})
    assert response.status_code == status
    assert response.json()["error"]["code"] == status
    assert response.json()["error"]["message"]
    with pytest.raises(EngineRejected) as error:
        await bench.engine.chat(body)
    assert error.value.status == status


@pytest.mark.promise
async def test_a_pause_holds_requests_and_resume_finishes_them(bench):
    prompt = await bench.prompt()
    made: list[Generation] = []

    async def one() -> None:
        made.append(await bench.engine.generate(prompt, max_tokens=5, temperature=0.0, ignore_eos=True))

    await bench.engine.pause()
    assert await bench.engine.is_paused()
    async with anyio.create_task_group() as group:
        group.start_soon(one)
        await anyio.sleep(0.3)
        assert not made
        assert await bench.engine.health()
        await bench.engine.resume()
    assert not await bench.engine.is_paused()
    assert len(made[0].token_ids) == 5


@pytest.mark.promise
async def test_a_swap_under_load_loses_nothing_and_goes_on_with_the_new_weights_alone(bench):
    engine, path = bench.engine, bench.directory / "b"
    prompts = [await bench.prompt(f"Number {i}") for i in range(3)]
    made: dict[int, Generation] = {}

    async def one(i: int) -> None:
        made[i] = await engine.generate(prompts[i], max_tokens=700, temperature=0.0, ignore_eos=True)

    await engine.prepare(path, epoch=seen_epoch(bench.url))
    # How long it takes until tokens are made, and how soon a server that is busy with them hears of a pause, depends on
    # the machine; with more than three requests a vLLM of so small a model hears of nothing until they are over.
    both: dict[int, Generation] = {}
    wait, attempts = 0.1, 0
    while not both:
        attempts += 1
        assert attempts <= 20, f"no swap came while answers were made; the last after {wait:.3f} s"
        await bench.serve("a", 1)
        async with anyio.create_task_group() as group:
            for i in range(len(prompts)):
                group.start_soon(one, i)
            await anyio.sleep(wait)
            await engine.pause()
            await engine.load(path, epoch=seen_epoch(bench.url))
            await engine.label(2)
            await engine.resume()
        assert all(len(answer.token_ids) == len(answer.logprobs) == 700 for answer in made.values())
        both = {i: answer for i, answer in made.items() if len(answer.versions) == 2}
        too_late = all(answer.versions[0].version == 1 for answer in made.values())
        wait *= 0.6 if too_late else 1.4
    for i, answer in both.items():
        cut = answer.versions[0].end
        assert answer.versions == spans((1, 0, cut), (2, cut, 700))
        fresh = await engine.generate(
            prompts[i] + answer.token_ids[:cut], max_tokens=50, temperature=0.0, ignore_eos=True
        )  # fmt: skip
        n = min(50, 700 - cut)
        assert answer.token_ids[cut : cut + n] == fresh.token_ids[:n]
        assert close(answer.logprobs[cut : cut + n], fresh.logprobs[:n])


async def test_the_same_prompt_after_a_swap_owes_nothing_to_the_old_weights(bench):
    prompt = await bench.prompt("A prompt that is long enough to be kept in a prefix cache, and then some more of it.")
    await bench.engine.generate(prompt, max_tokens=20, temperature=0.0, ignore_eos=True)
    await bench.serve("b", 2)
    warm = await bench.engine.generate(prompt, max_tokens=20, temperature=0.0, ignore_eos=True)
    scores = await bench.engine.log_probs(prompt + warm.token_ids)
    assert close(scores[len(prompt) :].tolist(), warm.logprobs)


@pytest.mark.parametrize("how", ["shape", "missing", "unknown", "nan", "truncated", "dtype", "config"])
async def test_a_bad_checkpoint_is_refused_and_the_old_one_keeps_serving(bench, tmp_path, how):
    bad = tmp_path / "bad"
    shutil.copytree(bench.directory / "b", bad)
    checkpoints.spoil(bad, how)
    prompt = await bench.prompt()
    before = await bench.engine.generate(prompt, max_tokens=10, temperature=0.0, ignore_eos=True)
    outcome = await perform(bench.job("bad", 2, tmp_path), bench.engine)
    assert outcome.result == "refused"
    assert outcome.reason
    after = await bench.engine.generate(prompt, max_tokens=10, temperature=0.0, ignore_eos=True)
    assert after.token_ids == before.token_ids
    assert await bench.engine.version() == 1
    assert not await bench.engine.is_paused()
