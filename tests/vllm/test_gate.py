"""The gate with a real vLLM as its shadow engine: worse weights, and weights that would only please a judge."""

from pathlib import Path

import pytest

from actors.gate.panel import Panel
from actors.gate.sandbox_trial import SandboxTrial
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


async def test_weights_that_say_at_once_that_they_are_done_are_rejected(url, numbered: Path, tmp_path: Path):
    async with VllmEngine(url, name="shadow") as engine:
        swaps = Swaps(
            tmp_path / "swaps", {"shadow": engine}, inline=frozenset({"shadow"}), weights=unsigned_weights(),
            store=FakeStore(),
        )  # fmt: skip
        paths = {0: numbered / "v000000", 2: tmp_path / "v000002"}
        await bad_weights.hacked(engine, paths[2], 2)

        async def load(version: int) -> None:
            report = await swaps.swap("shadow", paths[version], version)
            assert report.result == "swapped", report.reason

        trial = SandboxTrial(SETTINGS, environment=TravelDesk(), engine=engine, store=FakeStore())
        await load(2)
        verdict = await Panel(trial=trial, checks=[], seconds=120.0).compare(2, 0, [0], load)
        assert verdict.decision == "reject", verdict.reason
        assert verdict.measurements["incumbent_high"] < 0
        await load(0)
