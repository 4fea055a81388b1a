"""What outranks what, and the bounds of a verdict."""

import math
from itertools import product

import anyio
import pytest

from actors.gate.panel import Finding, Panel, Report, conclude
from actors.gate.sandbox_trial import Comparison
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio
FINDINGS = {
    kind: Finding(kind, reason)
    for kind, reason in (("safety", "calls drop_table"), ("conduct", "refusals 0.50"), ("drift", "2.000 nats a token"))
}


def test_a_broken_limit_rejects_whatever_the_effect_and_safety_is_said_first():
    for decision, *kinds in product(("promote", "hold", "reject"), *((None, kind) for kind in FINDINGS)):
        broken = [kind for kind in kinds if kind is not None]
        effect = Comparison(decision, f"outcomes say {decision}", {"success": 0.5})
        found = conclude(effect, [FINDINGS[kind] for kind in reversed(broken)], {"kl": 0.1})
        assert found.decision == ("reject" if broken else decision)
        assert effect.reason in found.reason
        first = "safety" if "safety" in broken else broken[0] if broken and decision != "reject" else ""
        assert not first or FINDINGS[first].reason in found.reason
        assert first != "safety" or found.reason.startswith("calls drop_table")
        expected = {f"breaches_{kind}": float(kind in broken) for kind in FINDINGS}
        assert found.measurements == {"success": 0.5, "kl": 0.1, **expected}


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
    """A check that measures which version was loaded; it breaks down under the version `away`."""

    def __init__(self, engine: Versions, name: str = "a", evidence: int = 1, seconds: float = 0.0, away: int = -1):
        self.name, self._engine, self._evidence, self._seconds, self._away = name, engine, evidence, seconds, away

    async def gather(self) -> int:
        return self._evidence

    async def measure(self) -> int:
        await anyio.sleep(self._seconds)
        if self._engine.loaded == self._away:
            raise RuntimeError("away")
        return self._engine.loaded

    def judge(self, candidate: int, incumbent: int) -> Report:
        return Report((), {f"{self.name}_versions": candidate * 10.0 + incumbent})


class Effect:
    """A trial that is for it."""

    deadline = math.nan

    async def compare(self, candidate, incumbent, served, load, *, deadline=math.inf) -> Comparison:
        self.deadline = deadline
        return Comparison("promote", "outcomes say promote", {})


def panel(*checks: Recording, seconds: float = 60.0) -> Panel:
    return Panel(trial=Effect(), checks=checks, seconds=seconds)


@pytest.mark.parametrize(("incumbent", "loads", "versions"), [(1, [1, 2], 21), (2, [], 22)])
async def test_all_checks_share_one_load_of_the_incumbent_and_the_candidate_is_back_in_the_end(
    incumbent, loads, versions
):
    engine = Versions(2)
    verdict = await panel(Recording(engine), Recording(engine, "b")).compare(2, incumbent, [0, 1], engine.load)
    assert engine.loads == loads
    assert verdict.measurements["a_versions"] == verdict.measurements["b_versions"] == versions


async def test_a_check_without_evidence_is_left_out_and_says_so():
    engine = Versions(2)
    verdict = await panel(Recording(engine, evidence=0)).compare(2, 1, [1], engine.load)
    assert (engine.loads, verdict.measurements["a_evidence"], "a_versions" in verdict.measurements) == ([], 0, False)


async def test_what_the_deadline_leaves_unchecked_is_held_and_the_candidate_is_back():
    engine = Versions(2)
    verdict = await panel(Recording(engine, seconds=20.0), seconds=30.0).compare(2, 1, [1], engine.load)
    assert (verdict.decision, "out of time" in verdict.reason) == ("hold", True)
    assert (verdict.measurements["unchecked"], engine.loaded) == (1, 2)


async def test_the_candidate_is_back_after_an_engine_failed_under_a_check():
    engine = Versions(2)
    with pytest.raises(RuntimeError):
        await panel(Recording(engine, away=1)).compare(2, 1, [1], engine.load)
    assert engine.loaded == 2
