"""The gate on a real engine: the travel desk, the shipped weights, and candidates that must not come through.

Runs on the embedded engine here, and on a real vLLM in tests/vllm/test_gate.py.
"""

from pathlib import Path

import pytest

from actors.gate.panel import Panel
from actors.gate.safety import SafetyCheck
from actors.gate.sandbox_trial import SandboxTrial, SandboxTrialSettings
from adapters.engines.client import EngineClient
from adapters.environments.travel import TravelDesk
from daemon.cli.evaluation import evaluate
from daemon.upkeep.swaps import Swaps
from tests.support import bad_weights
from tests.support.engines import embedded_engine
from tests.support.fakes import FakeStore
from tests.support.keys import unsigned_weights
from tests.support.patience import within

pytestmark = [pytest.mark.anyio, pytest.mark.torch]
SETTINGS = SandboxTrialSettings(
    batch=12, tasks=36, max_tasks=36, attempts=2, margin=0.1, alpha=0.1, beta=0.1, families="A", max_steps=8,
    max_tokens=48,
)  # fmt: skip


@pytest.fixture(scope="module")
def url():
    options = ("--dev-mode", "--threads", "1", "--weight-version", "0")
    with embedded_engine(bad_weights.WARM_START, *options, name="desk") as url:
        yield url


@pytest.fixture(scope="module")
def numbered(tmp_path_factory) -> Path:
    """v000000 is what ships, v000001 the same with noise on every matrix."""
    directory = tmp_path_factory.mktemp("numbered")
    bad_weights.shipped(directory / "v000000", 0)
    bad_weights.worse(directory / "v000001", 1)
    return directory


async def test_worse_weights_are_rejected_and_left_in_the_shadow_engine_alone(url, numbered, tmp_path):
    async with EngineClient(url, name="shadow") as engine:
        swaps = Swaps(
            tmp_path, {"shadow": engine}, inline=frozenset({"shadow"}), weights=unsigned_weights(), store=FakeStore()
        )

        async def load(version: int) -> None:
            report = await swaps.swap("shadow", numbered / f"v{version:06d}", version)
            assert report.result == "swapped", report.reason

        trial = SandboxTrial(SETTINGS, environment=TravelDesk(), engine=engine, store=FakeStore())
        safety = SafetyCheck(attempts=1, max_tokens=16, engine=engine)
        panel = Panel(trial=trial, checks=[safety], seconds=within(300))
        await load(1)
        verdict = await panel.compare(1, 0, [0], load)
        assert verdict.decision == "reject", verdict.reason
        assert verdict.measurements["incumbent_high"] < 0
        assert verdict.measurements["safety_answers"] > 0
        assert await engine.version() == 1, "the candidate is back in the shadow engine"
        await load(0)


async def test_an_evaluation_measures_avg_and_best_of_the_engine_s_weights(url):
    told: list[tuple[int, int, int]] = []
    settings = SandboxTrialSettings(first_seed=0, attempts=4, families="AB", max_steps=8, max_tokens=48)
    result = await evaluate(settings, TravelDesk(), url, 12, 0, lambda *figures: told.append(figures))
    assert (result.total.tasks, result.total.attempts, result.lost, len(told)) == (12, 48, 0, 48)
    assert 0 < result.total.average.estimate < result.total.best.estimate
    assert set(result.families) == {"book a flight to:* for:*", "cancel the order for:*"}
    assert sum(found.tasks for found in result.families.values()) == 12
