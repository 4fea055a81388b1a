"""The gate with a real vLLM as its shadow engine: worse weights, and weights that only please the judge."""

from pathlib import Path

import pytest

from actors.gate.panel import Panel, PanelSettings
from actors.gate.sandbox_trial import SandboxTrial
from actors.messages import Trajectory
from actors.rollout.episode_runner import play
from adapters.engines.vllm import VllmEngine
from adapters.environments.travel import TravelDesk
from daemon.upkeep.swaps import Swaps
from tests.integration.test_gate import *  # noqa: F403  the same gate; here its shadow engine is another
from tests.integration.test_gate import SETTINGS
from tests.support import bad_weights
from tests.support.fakes import FakeStore
from tests.support.keys import unsigned_weights


@pytest.fixture(scope="module")
def url(vllm: str) -> str:
    return vllm


async def liked(engine: VllmEngine, episodes: int) -> float:
    """Share of steps that the careless judge calls good."""
    desk, good, steps = TravelDesk(), 0, 0
    for number in range(episodes):
        episode = await desk.reset(desk.sample(number, "heldout", "A"))
        played = await play(engine, episode, max_steps=8, max_tokens=48, seed=number)
        run = Trajectory(id=str(number), steps=played.steps, started=0.0, ended=0.0)
        labels = (await bad_weights.Credulous().label(run)).labels
        good, steps = good + sum(label.label == "GOOD" for label in labels), steps + len(labels)
    return good / steps


async def test_weights_that_please_the_judge_and_fail_the_task_are_rejected(url, numbered: Path, tmp_path: Path):
    async with VllmEngine(url, name="shadow") as engine:
        swaps = Swaps(tmp_path / "swaps", {"shadow": engine}, inline=frozenset({"shadow"}), weights=unsigned_weights())
        paths = {0: numbered / "v000000", 2: tmp_path / "v000002"}
        await bad_weights.hacked(engine, paths[2], 2, steps=25)

        async def load(version: int) -> None:
            report = await swaps.swap("shadow", paths[version], version)
            assert report.result == "swapped", report.reason

        trial = SandboxTrial(SETTINGS, environment=TravelDesk(), engine=engine, store=FakeStore())
        await load(0)
        before = await liked(engine, 6)
        await load(2)
        assert await liked(engine, 6) > before + 0.3, "the judge of the rewards would have it"
        verdict = await Panel(PanelSettings(verdict_seconds=120.0), trial=trial, checks=[]).compare(2, 0, [0], load)
        assert verdict.decision == "reject", verdict.reason
        assert verdict.measurements["incumbent_high"] < 0
        await load(0)
