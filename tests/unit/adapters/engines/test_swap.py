"""The swap's steps on an engine in memory: whatever fails, the engine is resumed and something known serves."""

import json
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

    def __init__(self) -> None:
        self.done: list[str] = []
        self.paused = False
        self.served, self.path = 1, "a"
        self.fail: dict[str, list[Exception]] = {}
        """What is raised at a step, one after the other."""
        self.scores = {"a": 0.0, "b": 0.0}
        self.hang = False

    async def _step(self, name: str) -> None:
        self.done.append(name)
        if self.fail.get(name):
            raise self.fail[name].pop(0)
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


@pytest.fixture
def directory(tmp_path):
    checkpoints.write(tmp_path / "a", 1)
    checkpoints.write(tmp_path / "b", 2)
    return tmp_path


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


async def test_for_a_bad_checkpoint_the_engine_is_not_even_paused(directory, engine):
    checkpoints.spoil(directory / "b", "tied")
    outcome = await perform(job(directory), engine)
    assert (outcome.result, outcome.version) == ("refused", 1)
    assert "tied" in outcome.reason
    assert engine.done == ["version", "prepare b"]


LOST, BROKEN, WORSE = EngineUnavailable("lost"), EngineRejected("broken", 500), EngineRejected("broken too", 500)


@pytest.mark.parametrize(
    ("step", "failure"), [("version", LOST), ("prepare b", LOST), ("prepare b", EngineRejected("no endpoint", 404))]
)
async def test_an_engine_that_cannot_prepare_is_left_alone_and_the_version_is_not_blamed(
    directory, engine, step, failure
):
    engine.fail[step] = [failure]
    outcome = await perform(job(directory), engine)
    assert outcome.result == "unreachable"
    assert engine.done[-1] == step


NO_GOOD = {"last_good": "", "last_version": -1}


@pytest.mark.parametrize(
    ("failures", "changes", "result", "reason"),
    [
        ({"load b": CheckpointRefused("not like this")}, {}, "refused", "not like this"),
        ({"pause": BROKEN}, {}, "rolled_back", "broken"),
        ({"load b": BROKEN}, {}, "rolled_back", "broken"),
        ({"label": BROKEN}, {}, "rolled_back", "broken"),
        ({"label": BROKEN}, NO_GOOD, "failed", "broken"),
        ({"load b": BROKEN, "load a": WORSE}, {}, "failed", "broken too"),
    ],
)
async def test_a_step_that_fails_leaves_it_resumed_with_the_last_good_if_there_is_one(
    directory, engine, failures, changes, result, reason
):
    engine.fail = {step: [failure] for step, failure in failures.items()}
    outcome = await perform(job(directory, **changes), engine)
    assert (outcome.result, outcome.version) == (result, 1)
    assert reason in outcome.reason
    assert (engine.served, engine.paused) == (1, False)
    if result == "rolled_back":
        assert (engine.path, engine.cleaned) == ("a", True)


async def test_a_load_that_hangs_is_cut_at_the_deadline(directory, engine):
    engine.hang = True
    outcome = await perform(job(directory, deadline=0.2), engine)
    assert outcome.result == "rolled_back"
    assert not engine.paused


async def test_a_resume_that_is_lost_for_seconds_is_insisted_on(directory, engine, monkeypatch):
    monkeypatch.setattr(swap, "_RESUME_WAIT", 0.02)
    engine.fail["resume"] = [LOST] * 12
    outcome = await perform(job(directory), engine)
    assert outcome.result == "swapped"
    assert not engine.paused


async def test_cancelled_in_mid_load_it_still_resumes(directory, engine):
    engine.hang = True
    with anyio.move_on_after(0.2):
        await perform(job(directory), engine)
    assert not engine.paused


@pytest.mark.parametrize(
    ("second", "score", "result", "reason"),
    [
        *((None, score, "rolled_back", "no log-probs") for score in (float("nan"), float("inf"), 3.0, -9999.0)),
        (-1.6, -0.8, "rolled_back", "0.400 nats from the learner's in the mean of 2 tokens"),
        (-1.6, float("nan"), "rolled_back", "nan nats"),
        (-0.9, -0.8, "swapped", ""),
    ],
)
async def test_log_probs_that_are_none_or_not_the_learners_bring_the_last_good_back(
    directory, engine, second, score, result, reason
):
    if second is not None:
        (directory / "b" / SPOT_CHECK).write_text(json.dumps({"ids": [1, 2, 3], "log_probs": [-0.5, second]}))
    engine.scores["b"] = score
    outcome = await perform(job(directory), engine)
    assert outcome.result == result
    assert reason in outcome.reason
    assert engine.path == ("b" if result == "swapped" else "a")


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
