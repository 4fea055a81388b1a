"""Swaps on a real vLLM: exact, without loss, and never with a checkpoint that is not whole."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from actors.messages.manifest import SPOT_CHECK
from actors.ports.errors import CheckpointRefused
from adapters.engines.swap import perform, run_swap
from adapters.engines.swap_files import SwapJob
from adapters.engines.vllm import VllmEngine
from learner.service import open_trainer
from learner.settings import LearnerSettings
from learner.spot_check import spot_check
from tests.support import checkpoints
from tests.support.epochs import seen_epoch
from tests.support.patience import within
from tests.vllm.conftest import MODEL, Started, greedy

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
BAD = {
    "missing": "is missing", "unknown": "not part of the model", "shape": "has shape", "dtype": "is F16",
    "nan": "NaN", "truncated": "truncated", "config": "num_attention_heads", "digest": "sha256", "path": "is the path",
}  # fmt: skip


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def engine(tiny: Started, versions: Path) -> AsyncIterator[VllmEngine]:
    """With the plug-in, serving `a` as version 1."""
    async with VllmEngine(tiny.url) as engine:
        await swap(engine, versions / "a", 1)
        yield engine


def job(engine: VllmEngine, path: Path, version: int, **changes: object) -> SwapJob:
    good = path.parent / "a"
    fields = {"engine": engine.url, "path": str(path), "version": version, "result": "", "last_version": 1}
    if "epoch" not in changes:
        changes["epoch"] = seen_epoch(engine.url, engine.key)
    return SwapJob(**{**fields, "last_good": str(good) if good.exists() else "", **changes})


async def swap(engine: VllmEngine, path: Path, version: int, **changes: object) -> None:
    outcome = await perform(job(engine, path, version, **changes), engine)
    assert outcome.result == "swapped", outcome


async def test_a_swap_serves_what_a_fresh_server_serves_bit_for_bit(
    engine: VllmEngine, versions: Path, tied: Started
) -> None:
    await swap(engine, versions / "c", 2)
    assert greedy(engine.url) == tied.fresh


async def test_so_does_a_swap_of_a_tied_head(tied: Started, versions: Path, tiny: Started) -> None:
    async with VllmEngine(tied.url) as engine:
        await swap(engine, versions / "tied-a", 2, last_good=str(versions / "tied-c"))
        assert greedy(tied.url) == tiny.fresh
        await swap(engine, versions / "tied-c", 1, last_good=str(versions / "tied-a"))
        assert greedy(tied.url) == tied.fresh != tiny.fresh


async def streamed(url: str, tokens: int) -> int:
    """Tokens of a streamed answer that ended as it should."""
    body = {
        "model": "tiny", "messages": [{"role": "user", "content": "go on"}], "max_tokens": tokens, "ignore_eos": True,
        "stream": True, "return_token_ids": True,
    }  # fmt: skip
    ids, finish = 0, ""
    async with (
        httpx.AsyncClient(timeout=within()) as http,
        http.stream("POST", f"{url}/v1/chat/completions", json=body) as r,
    ):
        assert r.status_code == 200
        async for line in r.aiter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    ids += len(choice.get("token_ids") or ())
                    finish = choice["finish_reason"] or finish
    assert finish == "length"
    return ids


async def test_swaps_by_the_program_lose_nothing_of_streams_and_plain_answers(
    engine: VllmEngine, versions: Path, tmp_path: Path
) -> None:
    answers: list[int] = []
    stop = anyio.Event()

    async def client(stream: bool) -> None:
        prompt = await engine.render([{"role": "user", "content": "go on"}])
        while not stop.is_set():
            if stream:
                answers.append(await streamed(engine.url, 200))
            else:
                answers.append(len((await engine.generate(prompt, max_tokens=200, ignore_eos=True)).token_ids))

    async with anyio.create_task_group() as group:
        for i in range(4):  # with more, a server of so small a model hears of nothing for seconds
            group.start_soon(client, i % 2 == 0)
        for version in range(2, 7):
            path = versions / ("b" if version % 2 == 0 else "a")
            outcome = await run_swap(job(engine, path, version, result=str(tmp_path / "swap.json")))
            assert (outcome.result, outcome.version) == ("swapped", version), outcome
        stop.set()
    assert len(answers) >= 8
    assert set(answers) == {200}


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_checkpoint_is_refused_and_what_serves_is_the_same_bit_for_bit(
    engine: VllmEngine, versions: Path, tmp_path: Path, how: str
) -> None:
    bad = Path(shutil.copytree(versions / "b", tmp_path / "bad"))
    checkpoints.spoil(bad, how)
    before = greedy(engine.url)
    outcome = await perform(job(engine, bad, 2, last_good=str(versions / "a")), engine)
    assert outcome.result == "refused"
    assert BAD[how] in outcome.reason
    assert outcome.paused_seconds == 0.0
    await engine.pause()
    try:
        with pytest.raises(CheckpointRefused, match=BAD[how]):  # whoever leaves out the look before gets it at the load
            await engine.load(bad, epoch=seen_epoch(engine.url))
    finally:
        await engine.resume()
    assert greedy(engine.url) == before
    assert await engine.version() == 1


async def test_weights_that_overflow_are_rolled_back_and_leave_no_nan_in_the_cache(
    engine: VllmEngine, versions: Path, tmp_path: Path
) -> None:
    before = greedy(engine.url)
    hot = Path(shutil.copytree(versions / "b", tmp_path / "hot"))
    checkpoints.spoil(hot, "overflow")
    outcome = await perform(job(engine, hot, 2, last_good=str(versions / "a")), engine)
    assert (outcome.result, outcome.version) == ("rolled_back", 1), outcome
    assert greedy(engine.url) == before


async def test_the_learners_log_probs_are_those_of_vllm_and_layers_in_the_wrong_places_show(
    vllm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, wrong = (Path(shutil.copytree(MODEL, tmp_path / name)) for name in ("good", "wrong"))
    trainer = open_trainer(LearnerSettings(device="cpu", threads=1), good, good)
    expected = spot_check(trainer, seed=1)
    weights = load_file(good / "model.safetensors")
    first, last = "model.layers.0.", "model.layers.2."
    other = {first: last, last: first}
    moved = {other.get(name[: len(first)], name[: len(first)]) + name[len(first) :]: w for name, w in weights.items()}
    save_file(moved, wrong / "model.safetensors", metadata={"format": "pt"})
    for directory in (good, wrong):
        (directory / SPOT_CHECK).write_bytes(msgspec.json.encode(expected))
    async with VllmEngine(vllm) as stock:
        await swap(stock, good, 2, last_good=str(MODEL.absolute()))
        found = (await stock.log_probs(expected.ids))[1:]
        away = np.abs(found - np.array(expected.log_probs))
        outcome = await perform(job(stock, wrong, 3, last_good=str(good), last_version=2), stock)
        assert (outcome.result, outcome.version) == ("rolled_back", 2), outcome
        await swap(stock, MODEL.absolute(), 4, last_good=str(good))
    with capsys.disabled():
        print(f"\nspot check of 64 tokens: mean {away.mean():.6f}, largest {away.max():.6f} nats; {outcome.reason}")
    assert away.mean() < 1e-3
    assert "nats from the learner's" in outcome.reason


async def test_without_the_plug_in_the_stock_reload_swaps_exactly(vllm: str, tmp_path: Path) -> None:
    other = Path(shutil.copytree(MODEL, tmp_path / "other"))
    rng = np.random.default_rng(0)
    weights = load_file(other / "model.safetensors")
    noisy = {name: (w + 0.05 * rng.standard_normal(w.shape) * w.std()).astype(w.dtype) for name, w in weights.items()}
    save_file(noisy, other / "model.safetensors", metadata={"format": "pt"})
    async with VllmEngine(vllm) as stock:
        before = greedy(vllm)
        good = str(MODEL.absolute())
        await swap(stock, other, 2, last_good=good)
        assert greedy(vllm) != before
        await swap(stock, MODEL.absolute(), 3, last_good=str(other))
        assert greedy(vllm) == before


@pytest.mark.parametrize("how", ["missing", "shape", "nan", "truncated", "tied"])
async def test_without_the_plug_in_a_bad_or_tied_checkpoint_is_refused_before_it_is_sent(
    vllm: str, tmp_path: Path, how: str
) -> None:
    bad = Path(shutil.copytree(MODEL, tmp_path / "bad"))
    checkpoints.spoil(bad, how)
    before = greedy(vllm)
    async with VllmEngine(vllm) as stock:
        outcome = await perform(job(stock, bad, 2, last_good=str(MODEL.absolute())), stock)
    assert outcome.result == "refused"
    if how == "tied":
        assert "head is tied" in outcome.reason
    assert greedy(vllm) == before


async def test_a_smaller_lease_epoch_is_refused_whatever_it_brings(tied: Started, versions: Path) -> None:
    a, c = versions / "tied-a", versions / "tied-c"
    async with VllmEngine(tied.url) as engine:
        await swap(engine, a, 2, last_good=str(c), epoch=5)
        serving = greedy(tied.url)
        outcome = await perform(job(engine, c, 3, last_good=str(a), epoch=4), engine)
        assert outcome.result == "refused"
        assert "epoch 4 is smaller than 5" in outcome.reason
        with pytest.raises(CheckpointRefused, match="epoch 0 is smaller"):
            await engine.load(c)
        assert greedy(tied.url) == serving
        await swap(engine, c, 3, last_good=str(a), epoch=5)
        assert greedy(tied.url) == tied.fresh != serving
