"""The gate without a sandbox."""

import json

import msgspec
import pytest

from actors.gate import replay_trial
from actors.gate.replay_trial import ReplayTrial, ReplayTrialSettings
from actors.kinds.holdout import held_out
from actors.messages import Attributed, Attribution, Processing, Step, StepLabel, TokenRow, Trajectory, pack_array
from actors.system.errors import DependencyUnavailable
from tests.support.fakes import FakeEngine, FakeStore

pytestmark = pytest.mark.anyio
SETTINGS = ReplayTrialSettings(least=10, most=40, margin=0.1, small_step=0.0)
"""By outcomes alone; small steps have tests of their own."""
SMALL = msgspec.structs.replace(SETTINGS, small_step=0.05)
IDS = [name for name in (f"t{number}" for number in range(4000)) if held_out(name)]
TOKENS = 4


def production(name: str, ended: float, *, outcome: float | None, version: int = 0, tools=("win",), **sampled):
    row = TokenRow(
        ids=pack_array(range(2 + TOKENS), "<i4"),
        step=pack_array([-1, -1] + [0] * TOKENS, "<i2"),
        logprobs=pack_array([0, 0] + [-0.5] * TOKENS, "<f4"),
        versions=pack_array([-1, -1] + [version] * TOKENS, "<i4"),
        **sampled,
    )
    trajectory = Trajectory(
        id=name,
        tools=json.dumps([{"function": {"name": tool}} for tool in tools]).encode(),
        steps=(Step(exchange_id=f"e-{name}", row=0),),
        rows=(row,),
        outcome=outcome,
        started=ended - 1,
        ended=ended,
        min_version=version,
        max_version=version,
    )
    attribution = Attribution(labels=(StepLabel("GOOD"),), judge="rules", rubric="1")
    return Attributed(id=name, trajectory=trajectory, attribution=attribution)


class Scoring(FakeEngine):
    """Under version 1, trajectories that begin with an odd marker get likelier by `shift` a token."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.shift = shift
        self.scored: list[int] = []

    async def log_probs(self, ids):
        self.scored.append(self.current)
        values = await super().log_probs(ids)
        if self.current == 1:
            values = values + (self.shift if ids[0] else -self.shift)
        return values


class Uneven(Scoring):
    """Every other pair of a success and a failure is likelier, the rest unlikelier, in any order of scoring."""

    def __init__(self) -> None:
        super().__init__(0.0)

    async def log_probs(self, ids):
        values = await super().log_probs(ids)
        if self.current == 1:
            values = values + (0.05 if ids[1] // 2 % 2 else -0.05)
        return values


def store_of(count: int, version: int = 0, **sampled) -> FakeStore:
    """Every other trajectory succeeded and carries the marker; its number follows."""
    store = FakeStore()
    for number, name in enumerate(IDS[:count]):
        outcome = float(number % 2)
        item = production(name, float(number), outcome=outcome, version=version, **sampled)
        row = item.trajectory.rows[0]
        ids = pack_array([number % 2, number, *range(2, 2 + TOKENS)], "<i4")
        row = msgspec.structs.replace(row, ids=ids)
        store.save([msgspec.structs.replace(item, trajectory=msgspec.structs.replace(item.trajectory, rows=(row,)))])
    return store


def trial(store: FakeStore, engine: FakeEngine, settings: ReplayTrialSettings = SETTINGS) -> ReplayTrial:
    return ReplayTrial(settings, engine=engine, store=store)


def loader(engine: FakeEngine):
    async def load(version: int) -> None:
        engine.current = version

    return load


async def compare(store: FakeStore, engine: FakeEngine, settings: ReplayTrialSettings = SETTINGS):
    engine.current = 1
    return await trial(store, engine, settings).compare(1, 0, [0], loader(engine))


async def test_a_candidate_that_prefers_what_worked_is_promoted():
    comparison = await compare(store_of(40), Scoring(0.05))
    assert comparison.decision == "promote"
    assert comparison.measurements["success"] > comparison.measurements["incumbent_success"] == 0.5


async def test_a_candidate_that_prefers_what_failed_is_rejected():
    comparison = await compare(store_of(40), Scoring(-0.1))
    assert comparison.decision == "reject"


async def test_an_unchanged_candidate_is_promoted():
    comparison = await compare(store_of(40), Scoring(0.0))
    assert (comparison.decision, comparison.measurements["kl"]) == ("promote", 0.0)


async def test_a_candidate_too_far_away_is_held():
    comparison = await compare(store_of(40), Scoring(0.8))
    assert comparison.decision == "hold"
    assert "nats" in comparison.reason


async def test_little_evidence_is_waited_for_and_is_no_verdict():
    comparison = await compare(store_of(9), Scoring(0.05))
    assert comparison.decision == "wait"
    assert (comparison.measurements["evidence"], comparison.measurements["evidence_needed"]) == (9, 10)
    assert comparison.reason.startswith("9 of 10 held-out outcomes")


async def test_outcomes_are_counted_and_not_runs():
    store = store_of(20)
    for number, name in enumerate(IDS[20:60]):  # newer, and nobody said how they went
        store.save([production(name, 1000.0 + number, outcome=None)])
    comparison = await compare(store, Scoring(0.05))
    assert (comparison.decision, comparison.measurements["trajectories"]) == ("promote", 20)


async def test_a_small_step_that_a_handful_of_outcomes_do_not_speak_against_serves_on_trial():
    few = msgspec.structs.replace(SMALL, least=32)
    comparison = await compare(store_of(8), Scoring(0.1), few)
    assert comparison.decision == "promote"
    assert (comparison.measurements["small_step"], comparison.measurements["trajectories"]) == (1.0, 8.0)
    assert 0 < comparison.measurements["kl"] < 0.05
    assert "its trial decides" in comparison.reason


async def test_a_step_that_is_not_small_waits_for_outcomes():
    few = msgspec.structs.replace(SMALL, least=32)
    comparison = await compare(store_of(8), Scoring(0.5), few)
    assert (comparison.decision, comparison.measurements["evidence_needed"]) == ("wait", 32)
    assert "is no small step" in comparison.reason


async def test_a_small_step_needs_a_handful_of_outcomes():
    few = msgspec.structs.replace(SMALL, least=32)
    comparison = await compare(store_of(7), Scoring(0.0), few)
    assert (comparison.decision, comparison.reason) == ("wait", "7 of 8 held-out outcomes")


async def test_a_small_step_that_outcomes_speak_against_is_not_taken():
    assert (await compare(store_of(40), Scoring(-0.1), SMALL)).decision == "reject"
    few = msgspec.structs.replace(SMALL, least=60)
    comparison = await compare(store_of(30), Scoring(-0.1), few)
    assert (comparison.decision, comparison.measurements["evidence_needed"]) == ("wait", 60)
    assert "they speak against it" in comparison.reason


async def test_where_outcomes_decide_nothing_a_small_step_is_taken_and_a_large_one_held():
    undecided = {"margin": 0.0, "least": 10}
    assert (await compare(store_of(12), Uneven(), msgspec.structs.replace(SMALL, **undecided))).decision == "promote"
    large = msgspec.structs.replace(SMALL, small_step=1e-6, **undecided)
    assert (await compare(store_of(12), Uneven(), large)).decision == "hold"


async def test_a_candidate_is_looked_at_again_only_when_there_is_more_to_see():
    store, engine = store_of(12), Uneven()
    gate = trial(store, engine, msgspec.structs.replace(SETTINGS, margin=0.0))

    async def look() -> str:
        engine.current = 1
        return (await gate.compare(1, 0, [0], loader(engine))).decision

    assert [await look(), await look()] == ["hold", "wait"]
    scored = len(engine.scored)
    store.save([production(IDS[12], 99.0, outcome=1.0)])
    assert (await look(), len(engine.scored)) == ("wait", scored), "one more outcome is not worth a look"
    for number in (13, 14):
        store.save([production(IDS[number], 99.0, outcome=1.0)])
    assert await look() != "wait"


@pytest.mark.parametrize(("shift", "decision"), [(0.05, "promote"), (-0.1, "reject")])
async def test_runs_at_another_temperature_are_evidence_as_good_as_others(shift: float, decision: str):
    store = store_of(40, temperature=0.7)
    engine = Scoring(shift)
    comparison = await compare(store, engine)
    assert (comparison.decision, comparison.measurements["trajectories"]) == (decision, 40.0)
    assert set(engine.scored) == {0, 1}, "what was recorded is of another distribution"
    assert comparison.measurements["incumbent_difference"] == pytest.approx(2 * shift, rel=0.01)


async def test_evidence_without_a_failure_says_little():
    store = FakeStore()
    for number, name in enumerate(IDS[:40]):
        store.save([production(name, float(number), outcome=1.0)])
    comparison = await compare(store, Scoring(0.05))
    low = comparison.measurements["incumbent_low"]
    assert (comparison.decision, round(low, 3)) == ("promote", -0.063), "no failure in 40 runs is Wilson's limit"
    store = FakeStore()
    for number, name in enumerate(IDS[:40]):
        store.save([production(name, float(number), outcome=0.0)])
    assert (await compare(store, Scoring(0.05))).decision == "hold"


async def test_log_probs_of_a_cut_distribution_are_not_taken_for_the_incumbents():
    """top_p at temperature 1: what was recorded is of the tokens that were left, each likelier."""
    store, engine = store_of(40), Scoring(0.05)
    engine.scores = {0: -0.6, 1: -0.6}
    comparison = await compare(store, engine)
    assert set(engine.scored) == {0, 1}
    assert comparison.decision == "promote"


async def test_the_incumbent_is_scored_where_something_was_done_to_the_logits():
    engine = Scoring(0.05)
    await compare(store_of(40, processing=Processing(repetition_penalty=1.05)), engine)
    assert set(engine.scored) == {0, 1}


async def test_a_long_run_that_nothing_can_be_weighed_by_may_still_be_a_small_step(monkeypatch):
    monkeypatch.setattr(replay_trial, "_EFFECTIVE_SHARE", 1.1)
    assert (await compare(store_of(40), Scoring(-0.1), SMALL)).decision == "promote"


async def test_each_of_several_agents_has_tools_of_today():
    store = store_of(20)
    for number, name in enumerate(IDS[20:24]):
        store.save([production(name, 500.0 + number, outcome=1.0, tools=("other",))])
    comparison = await compare(store, Scoring(0.0))
    assert comparison.measurements["trajectories"] == 24


async def test_the_incumbent_is_scored_only_if_it_did_not_act_itself():
    engine = Scoring(0.05)
    await compare(store_of(20), engine)
    assert set(engine.scored) == {1}
    engine = Scoring(0.05)
    await compare(store_of(20, version=7), engine)
    assert set(engine.scored) == {0, 1}
    assert engine.current == 1


async def test_only_held_out_successes_with_todays_tools_and_honest_log_probs_count():
    store = store_of(20)
    store.save([production("not held out", 90.0, outcome=1.0)])
    assert not held_out("not held out")
    store.save([production(IDS[30], 50.0, outcome=None)])
    for number, name in enumerate(IDS[33 : 33 + 256]):
        store.save([production(name, 60.0 + number, outcome=None)])
    store.save([production(IDS[32], -1.0, outcome=1.0, tools=("old",))])
    comparison = await compare(store, Scoring(0.0))
    assert comparison.measurements["trajectories"] == 20


async def test_an_engine_that_is_away_is_waited_for():
    engine = Scoring(0.0)
    engine.down = True
    with pytest.raises(DependencyUnavailable):
        await compare(store_of(20), engine)
