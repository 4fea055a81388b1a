"""Swaps on a real vLLM: exact, without loss, and never with a checkpoint that is not whole."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from actors.ports.errors import CheckpointRefused
from adapters.engines.swap import perform
from adapters.engines.swap_files import SwapJob
from adapters.engines.vllm import VllmEngine
from learner.service import open_trainer
from learner.settings import LearnerSettings
from learner.spot_check import spot_check
from tests.support import checkpoints
from tests.support.epochs import seen_epoch
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


@pytest.mark.parametrize("how", BAD)
async def test_a_bad_checkpoint_is_refused_and_what_serves_is_the_same_bit_for_bit(
    engine: VllmEngine, versions: Path, tmp_path: Path, how: str
) -> None:
    bad = Path(shutil.copytree(versions / "b", tmp_path / "bad"))
    checkpoints.spoil(bad, how)
    before = greedy(engine.url)
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


async def test_the_learners_log_probs_are_those_of_vllm(vllm: str) -> None:
    expected = spot_check(open_trainer(LearnerSettings(device="cpu"), MODEL, MODEL), seed=1)
    async with VllmEngine(vllm) as stock:
        found = (await stock.log_probs(expected.ids))[1:]
    assert np.abs(found - np.array(expected.log_probs)).mean() < 1e-3


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
