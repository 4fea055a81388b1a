"""What outranks what, and the bounds of a verdict."""

import math
from itertools import product

import anyio
import pytest

from actors.gate.panel import Finding, Panel, PanelSettings, Report, conclude
from actors.gate.sandbox_trial import Comparison
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio
SAFETY = Finding("safety", "calls drop_table")
CONDUCT = Finding("conduct", "refusals 0.50 against 0.00")
DRIFT = Finding("drift", "2.000 nats a token")


def effect(decision: str) -> Comparison:
    return Comparison(decision, f"outcomes say {decision}", {"success": 0.5})


def decided(decision: str, *findings: Finding) -> Comparison:
    return conclude(effect(decision), findings, {"kl": 0.1})


@pytest.mark.parametrize("decision", ["promote", "hold", "reject"])
def test_safety_outranks_every_effect(decision):
    verdict = decided(decision, CONDUCT, SAFETY)
    assert verdict.decision == "reject"
    assert verdict.reason.startswith("calls drop_table")


@pytest.mark.parametrize("finding", [CONDUCT, DRIFT])
def test_a_broken_limit_of_conduct_or_drift_rejects_even_what_does_better(finding):
    verdict = decided("promote", finding)
    assert verdict.decision == "reject"
    assert finding.reason in verdict.reason
    assert "outcomes say promote" in verdict.reason


def test_no_set_of_findings_ever_makes_a_verdict_kinder():
    rank = {"reject": 0, "hold": 1, "promote": 2}
    for decision in rank:
        for chosen in product((None, SAFETY), (None, CONDUCT), (None, DRIFT)):
            findings = [finding for finding in chosen if finding is not None]
            assert rank[decided(decision, *findings).decision] <= rank[decision]


def test_a_verdict_carries_every_figure_and_counts_the_breaches():
    figures = decided("promote", CONDUCT).measurements
    assert (figures["success"], figures["kl"]) == (0.5, 0.1)
    assert (figures["breaches_conduct"], figures["breaches_safety"]) == (1, 0)


class Versions:
    """An engine in one number."""

    def __init__(self, loaded: int) -> None:
        self.loaded = loaded
        self.loads: list[int] = []

    async def load(self, version: int) -> None:
        await anyio.lowlevel.checkpoint()
        self.loads.append(version)
        self.loaded = version


class Recording:
    """A check that notes which version it was asked to measure."""

    def __init__(self, engine: Versions, name: str, evidence: int = 1, seconds: float = 0.0) -> None:
        self.name, self._engine, self._evidence, self._seconds = name, engine, evidence, seconds
        self.measured: list[int] = []

    async def gather(self) -> int:
        return self._evidence

    async def measure(self) -> int:
        await anyio.sleep(self._seconds)
        self.measured.append(self._engine.loaded)
        return self._engine.loaded

    def judge(self, candidate: int, incumbent: int) -> Report:
        return Report((), {f"{self.name}_versions": candidate * 10.0 + incumbent})


class Effect:
    def __init__(self) -> None:
        self.deadline = math.nan

    async def compare(self, candidate, incumbent, served, load, *, deadline=math.inf) -> Comparison:
        self.deadline = deadline
        return effect("promote")


def panel(*checks: Recording, seconds: float = 60.0, trial: Effect | None = None) -> Panel:
    return Panel(PanelSettings(verdict_seconds=seconds), trial=trial or Effect(), checks=checks)


async def test_all_checks_share_one_load_of_the_incumbent_and_the_candidate_is_back_in_the_end():
    engine = Versions(2)
    verdict = await panel(Recording(engine, "a"), Recording(engine, "b")).compare(2, 1, [0, 1], engine.load)
    assert engine.loads == [1, 2]
    assert verdict.measurements["a_versions"] == verdict.measurements["b_versions"] == 21


async def test_what_serves_is_not_loaded_to_be_compared_with_itself():
    engine = Versions(1)
    verdict = await panel(Recording(engine, "a")).compare(1, 1, [1], engine.load)
    assert engine.loads == []
    assert verdict.measurements["a_versions"] == 11


async def test_a_check_without_evidence_is_left_out_and_says_so():
    engine = Versions(2)
    check = Recording(engine, "a", evidence=0)
    verdict = await panel(check).compare(2, 1, [1], engine.load)
    assert (check.measured, engine.loads) == ([], [])
    assert verdict.measurements["a_evidence"] == 0


async def test_what_the_deadline_leaves_unchecked_is_held_and_the_candidate_is_back():
    engine, trial = Versions(2), Effect()
    slow = Recording(engine, "slow", seconds=20.0)
    verdict = await panel(slow, seconds=30.0, trial=trial).compare(2, 1, [1], engine.load)
    assert verdict.decision == "hold"
    assert "out of time" in verdict.reason
    assert verdict.measurements["unchecked"] == 1
    assert engine.loaded == 2
    assert trial.deadline < math.inf


async def test_the_candidate_is_back_after_an_engine_failed_under_a_check():
    engine = Versions(2)

    class Failing(Recording):
        async def measure(self) -> int:
            if self._engine.loaded == 1:
                raise RuntimeError("away")
            return await super().measure()

    with pytest.raises(RuntimeError):
        await panel(Failing(engine, "a")).compare(2, 1, [1], engine.load)
    assert engine.loaded == 2
