"""The swap's steps on an engine in memory: whatever fails, the engine is resumed and something known serves."""

import json
import shutil
from pathlib import Path

import anyio
import numpy as np
import pytest

from actors.messages.manifest import SPOT_CHECK
from actors.ports.engines import Generation
from actors.ports.errors import CheckpointRefused, EngineRejected, EngineUnavailable
from adapters.engines import swap
from adapters.engines.checkpoint import describe, validate
from adapters.engines.swap import perform
from adapters.engines.swap_files import SwapJob
from tests.support import checkpoints

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


class FakeEngine:
    """Keeps what it is told, and fails where it is told to."""

    name = "fake"

    def __init__(self) -> None:
        self.done: list[str] = []
        self.paused = False
        self.served, self.path = 1, "a"
        self.fail: dict[str, list[BaseException | None]] = {}
        self.scores = {"a": 0.0, "b": 0.0}
        self.hang = False

    async def _step(self, name: str) -> None:
        self.done.append(name)
        failures = self.fail.get(name)
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure
        await anyio.lowlevel.checkpoint()

    async def version(self) -> int:
        await self._step("version")
        return self.served

    async def pause(self) -> None:
        self.paused = True
        await self._step("pause")

    async def prepare(self, path: Path, *, like: Path | None = None, manifest: str = "", epoch: int = 0) -> None:
        await self._step(f"prepare {path.name}")
        validate(path, like=describe(like) if like else None, allow_tied=False)

    async def load(self, path: Path, *, epoch: int = 0, clean: bool = False) -> None:
        self.cleaned = clean
        await self._step(f"load {path.name}")
        if self.hang:
            self.hang = False
            await anyio.sleep_forever()
        self.path = path.name

    async def label(self, version: int) -> None:
        await self._step("label")
        self.served = version

    async def resume(self) -> None:
        await self._step("resume")
        self.paused = False

    async def render(self, messages, tools=None):
        return [1, 2]

    async def generate(self, prompt_ids, **options) -> Generation:
        await self._step("generate")
        return Generation(token_ids=[1], logprobs=[self.scores[self.path]], versions=(), finish_reason="length")

    async def log_probs(self, ids):
        return np.array([np.nan, -0.5, self.scores[self.path]], dtype=np.float32)


@pytest.fixture(scope="module")
def _made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("swap")
    checkpoints.write(directory / "a", 1)
    checkpoints.write(directory / "b", 2)
    return directory


@pytest.fixture
def directory(_made, tmp_path):
    return Path(shutil.copytree(_made, tmp_path / "versions"))


@pytest.fixture
def engine():
    return FakeEngine()


def job(directory: Path, **changes) -> SwapJob:
    fields = {
        "engine": "http://nowhere", "path": str(directory / "b"), "version": 2, "result": "",
        "last_good": str(directory / "a"), "last_version": 1, "deadline": 5.0,
    }  # fmt: skip
    return SwapJob(**{**fields, **changes})


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_pauses_loads_labels_resumes_and_looks(directory, engine):
    outcome = await perform(job(directory), engine)
    assert (outcome.result, outcome.version) == ("swapped", 2)
    assert engine.done == ["version", "prepare b", "pause", "load b", "label", "resume", "version", "generate"]
    assert 0 < outcome.paused_seconds <= outcome.total_seconds


@pytest.mark.parametrize("how", ["nan", "missing", "shape", "truncated", "tied"])
async def test_for_a_bad_checkpoint_the_engine_is_not_even_paused(directory, engine, how):
    checkpoints.spoil(directory / "b", how)
    outcome = await perform(job(directory), engine)
    assert (outcome.result, outcome.version) == ("refused", 1)
    assert engine.done == ["version", "prepare b"]


@pytest.mark.parametrize("failure", [EngineUnavailable("still reading"), EngineRejected("no such endpoint", 404)])
async def test_an_engine_that_cannot_prepare_is_not_paused_and_the_version_is_not_blamed(directory, engine, failure):
    engine.fail["prepare b"] = [failure]
    outcome = await perform(job(directory), engine)
    assert outcome.result == "unreachable"
    assert "pause" not in engine.done


async def test_an_engine_that_does_not_answer_is_left_alone(directory, engine):
    engine.fail["version"] = [EngineUnavailable("nobody there")]
    outcome = await perform(job(directory), engine)
    assert outcome.result == "unreachable"
    assert engine.done == ["version"]


async def test_a_load_that_the_engine_refuses_is_resumed_with_what_it_had(directory, engine):
    engine.fail["load b"] = [CheckpointRefused("not like this")]
    outcome = await perform(job(directory), engine)
    assert (outcome.result, outcome.version, outcome.reason) == ("refused", 1, "not like this")
    assert engine.done[-1] == "resume"


@pytest.mark.parametrize("step", ["pause", "load b", "label"])
async def test_a_step_that_fails_brings_the_last_good_back(directory, engine, step):
    engine.fail[step] = [EngineRejected("broken", 500)]
    outcome = await perform(job(directory), engine)
    assert (outcome.result, outcome.version) == ("rolled_back", 1)
    assert "broken" in outcome.reason
    assert (engine.path, engine.served, engine.paused) == ("a", 1, False)
    assert engine.cleaned


async def test_a_load_that_hangs_is_cut_at_the_deadline(directory, engine):
    engine.hang = True
    outcome = await perform(job(directory, deadline=0.2), engine)
    assert outcome.result == "rolled_back"
    assert not engine.paused


async def test_a_resume_that_is_lost_for_seconds_is_insisted_on(directory, engine, monkeypatch):
    monkeypatch.setattr(swap, "_RESUME_WAIT", 0.02)
    engine.fail["resume"] = [EngineUnavailable("lost")] * 12
    outcome = await perform(job(directory), engine)
    assert outcome.result == "swapped"
    assert not engine.paused


async def test_cancelled_in_mid_load_it_still_resumes(directory, engine):
    engine.hang = True
    with anyio.move_on_after(0.2):
        await perform(job(directory), engine)
    assert not engine.paused


async def test_no_last_good_and_a_failure_is_failed_and_resumed(directory, engine):
    engine.fail["label"] = [EngineRejected("broken", 500)]
    outcome = await perform(job(directory, last_good="", last_version=-1), engine)
    assert (outcome.result, outcome.version) == ("failed", 1)
    assert not engine.paused


async def test_failing_again_on_the_way_back_is_failed(directory, engine):
    engine.fail["load b"] = [EngineRejected("broken", 500)]
    engine.fail["load a"] = [EngineRejected("broken too", 500)]
    outcome = await perform(job(directory), engine)
    assert outcome.result == "failed"
    assert "broken too" in outcome.reason
    assert not engine.paused


@pytest.mark.parametrize("score", [float("nan"), float("inf"), 3.0, -9999.0])
async def test_an_answer_without_log_probs_brings_the_last_good_back(directory, engine, score):
    engine.scores["b"] = score
    outcome = await perform(job(directory), engine)
    assert outcome.result == "rolled_back"
    assert "no log-probs" in outcome.reason
    assert engine.path == "a"


async def test_weights_that_compute_something_else_than_the_learner_bring_the_last_good_back(directory, engine):
    (directory / "b" / SPOT_CHECK).write_text(json.dumps({"ids": [1, 2, 3], "log_probs": [-0.5, -1.6]}))
    engine.scores["b"] = -0.8
    outcome = await perform(job(directory), engine)
    assert outcome.result == "rolled_back"
    assert "0.400 nats from the learner's in the mean of 2 tokens" in outcome.reason
    engine.scores["b"] = float("nan")
    assert (await perform(job(directory), engine)).result == "rolled_back"


async def test_weights_that_compute_what_the_learner_did_but_for_rounding_serve(directory, engine):
    (directory / "b" / SPOT_CHECK).write_text(json.dumps({"ids": [1, 2, 3], "log_probs": [-0.55, -0.9]}))
    engine.scores["b"] = -0.8
    assert (await perform(job(directory), engine)).result == "swapped"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"ids": [1], "log_probs": []}',
        '{"ids": [1, 2], "log_probs": [0, 0]}',
        '{"ids": [1, -2], "log_probs": [0]}',
    ],
)
async def test_a_spot_check_that_cannot_be_read_refuses_the_version(directory, engine, content):
    (directory / "b" / SPOT_CHECK).write_text(content)
    outcome = await perform(job(directory), engine)
    assert outcome.result == "refused"
    assert "write the version again" in outcome.reason
    assert engine.done == []
