"""The gate without a sandbox: what decides, and what a party that lies can do about it."""

from collections.abc import Mapping
from typing import Any

import pytest

from actors.gate import replay_trial
from actors.gate.replay_trial import ReplayTrial
from actors.messages import Processing
from actors.system.errors import DependencyUnavailable
from tests.support.fakes import FakeEngine, FakeStore
from tests.unit.actors.gate.made import HELD_OUT, NOT_HELD_OUT, loader, production

pytestmark = pytest.mark.anyio
SETTINGS: dict[str, Any] = {"least": 10, "margin": 0.1, "small_step": 0.0}
"""By outcomes alone, unless a test says otherwise."""
DEFAULTS: dict[str, Any] = {"small_step": 0.0}
SHIFT = 0.1


class Traffic:
    """A store of runs, the next always the newest."""

    def __init__(self) -> None:
        self.store, self.saved = FakeStore(), 0

    def save(self, count: int, good: int = 10, *, reported: bool = True, ids=(), **fields) -> "Traffic":
        """`count` runs; the candidate likes every other. Of ten that it likes `good` succeed, and of ten that it does
        not like the others do."""
        for number in range(count):
            liked = number % 2
            succeeded = (number // 2 % 10 < good) == bool(liked)
            outcome = float(succeeded) if reported else None
            start = (liked, number % 7, *ids)
            self.store.save([
                production(HELD_OUT[self.saved], float(self.saved), outcome=outcome, ids=start, **fields)
            ])  # fmt: skip
            self.saved += 1
        return self


def honest(good: int, *, parties: str = "abcd", each: int = 20) -> Traffic:
    traffic = Traffic()
    for name in parties:
        traffic.save(each, good, tenant=name)
    return traffic


class Scoring(FakeEngine):
    """Version 1 makes the runs that it likes likelier by `shift` a token and the others unlikelier, some more than
    others by `spread`; and what begins with 99 by `strange`."""

    def __init__(self, shift: float, spread: float = 0.0, strange: float = 0.0) -> None:
        super().__init__()
        self.shift, self.spread, self.strange = shift, spread, strange
        self.scored: list[int] = []

    async def log_probs(self, ids):
        self.scored.append(self.current)
        values = await super().log_probs(ids)
        if self.current == 1:
            values = values + (self.shift if ids[0] else -self.shift) + self.spread * (ids[1] - 3)
            values = values + self.strange * (ids[2] == 99)
        return values


async def compare(traffic: Traffic, engine: FakeEngine, settings: Mapping[str, Any] = SETTINGS, **changes):
    engine.current = 1
    trial = ReplayTrial(engine=engine, store=traffic.store, **{**settings, **changes})
    return await trial.compare(1, 0, [0], loader(engine))


async def judged(traffic: Traffic):
    return await compare(traffic, Scoring(SHIFT, 0.02), DEFAULTS)


SMALL = {"small_step": 0.05}
EVEN = {"margin": 0.0}


@pytest.mark.parametrize(
    ("runs", "good", "shift", "changes", "decision", "says"),
    [
        (40, 10, 0.05, {}, "promote", "replay of 40"),
        (40, 10, -0.1, {}, "reject", ""),
        (40, 10, 0.0, {}, "promote", ""),
        (40, 10, 0.8, {}, "hold", "nats a token from the incumbent, 0.1 are allowed"),
        (9, 10, 0.05, {}, "wait", "9 of 10 held-out outcomes"),
        (8, 10, 0.1, SMALL | {"least": 32}, "promote", "its trial decides"),
        (8, 10, 0.5, SMALL | {"least": 32}, "wait", "is no small step"),
        (7, 10, 0.0, SMALL | {"least": 32}, "wait", "7 of 8 held-out outcomes"),
        (40, 10, -0.1, SMALL, "reject", ""),
        (30, 10, -0.1, SMALL | {"least": 60}, "wait", "they speak against it"),
        (20, 5, 0.05, SMALL | EVEN, "promote", "small step"),
        (20, 5, 0.05, {"small_step": 1e-6} | EVEN, "hold", ""),
    ],
    ids=[
        "prefers what worked", "prefers what failed", "unchanged", "too far", "too little", "small step",
        "large step", "a handful too few", "small step to what failed", "a few speak against it",
        "undecided and small", "undecided and large",
    ],
)  # fmt: skip
async def test_what_is_decided(runs, good, shift, changes, decision, says):
    found = await compare(Traffic().save(runs, good), Scoring(shift), **changes)
    assert (found.decision, says in found.reason) == (decision, True), found.reason
    if decision == "wait":
        need = 8 if runs < 8 else changes.get("least", 10)
        assert (found.measurements["evidence"], found.measurements["evidence_needed"]) == (runs, need)
    else:
        assert found.measurements["trajectories"] == runs
        assert found.measurements["small_step"] == float("small step" in found.reason)


@pytest.mark.parametrize(
    ("runs", "shift", "limit", "decision", "says"),
    [
        (140, 0.62, 0.5, "hold", "0.1 are allowed"),
        (140, 0.62, 0.15, "reject", "nats a token from the incumbent on production tokens, 0.15 are allowed"),
        (20, 0.62, 0.15, "hold", "0.1 are allowed"),
    ],
    ids=["outcomes decide nothing", "too far for any outcome", "few tokens conclude nothing"],
)
async def test_how_far_a_candidate_may_be_whatever_its_outcomes_say(runs, shift, limit, decision, says):
    found = await compare(Traffic().save(runs), Scoring(shift), limit=limit)
    assert (found.decision, says in found.reason) == (decision, True), found.reason
    assert found.measurements["drift_kl"] == pytest.approx(0.2, abs=0.03)


async def test_agents_that_nobody_reports_count_for_the_distance():
    traffic = Traffic().save(40)
    near = await compare(traffic, Scoring(0.05, strange=2.0))
    traffic.save(64, reported=False, ids=(99,), tools=("other",))
    far = await compare(traffic, Scoring(0.05, strange=2.0))
    assert near.measurements["drift_kl"] < 0.01 < 1.0 < far.measurements["drift_kl"]
    assert far.measurements["trajectories"] == 40


async def test_a_long_run_that_nothing_can_be_weighed_by_may_still_be_a_small_step(monkeypatch):
    monkeypatch.setattr(replay_trial, "_EFFECTIVE_SHARE", 1.1)
    assert (await compare(Traffic().save(40), Scoring(-0.1), **SMALL)).decision == "promote"


@pytest.mark.parametrize(("good", "decision"), [(1.0, "promote"), (0.0, "hold")])
async def test_evidence_without_a_failure_or_a_success_says_little(good, decision):
    traffic = Traffic()
    for number, name in enumerate(HELD_OUT[:40]):
        traffic.store.save([production(name, float(number), outcome=good, ids=(number % 2,))])
    found = await compare(traffic, Scoring(0.05))
    assert found.decision == decision
    assert not good or round(found.measurements["incumbent_low"], 3) == -0.063, "Wilson's limit of no failure in 40"


@pytest.mark.parametrize(
    ("sampled", "scores"),
    [
        ({}, {}),
        ({"version": 7}, {}),
        ({"temperature": 0.7}, {}),
        ({"processing": Processing(repetition_penalty=1.05)}, {}),
        ({}, {0: -0.6, 1: -0.6}),
    ],
    ids=["its own", "another's", "another temperature", "processed", "of a cut distribution"],
)
@pytest.mark.parametrize(("shift", "decision"), [(0.05, "promote"), (-0.1, "reject")])
async def test_both_are_scored_whatever_was_recorded(sampled, scores, shift, decision):
    engine = Scoring(shift)
    engine.scores = scores
    found = await compare(Traffic().save(40, **sampled), engine)
    assert (found.decision, set(engine.scored), engine.current) == (decision, {0, 1}, 1)
    assert found.measurements["incumbent_difference"] == pytest.approx(2 * shift, rel=0.1)


async def test_it_is_looked_at_again_only_for_new_runs_though_a_full_window_does_not_grow(monkeypatch):
    monkeypatch.setattr(replay_trial, "_EFFECTIVE_SHARE", 1.1)
    monkeypatch.setattr(replay_trial, "SCORED", 64)
    traffic, engine = honest(5, each=64), Scoring(0.0, 0.02)
    trial = ReplayTrial(engine=engine, store=traffic.store, **DEFAULTS)

    async def look() -> str:
        engine.current = 1
        return (await trial.compare(1, 0, [0], loader(engine))).decision

    assert [await look(), await look()] == ["hold", "wait"]
    scored = len(engine.scored)
    traffic.save(4, 5, tenant="a")
    assert (await look(), len(engine.scored)) == ("wait", scored), "four more are not worth a look"
    traffic.save(4, 5, tenant="b")
    assert await look() == "hold"


async def test_only_held_out_outcomes_with_todays_tools_and_honest_tokens_of_every_step_count():
    traffic = Traffic().save(20)
    more = [
        production(NOT_HELD_OUT, 90.0, outcome=1.0),
        production(HELD_OUT[900], -1.0, outcome=1.0, tools=("old",)),
        production(HELD_OUT[901], 91.0, outcome=1.0, logprob=float("nan")),
        production(HELD_OUT[902], 92.0, outcome=1.0, why_not="temperature 0"),
    ]
    traffic.store.save(more)
    traffic.save(256, reported=False)
    assert (await compare(traffic, Scoring(0.0))).measurements["trajectories"] == 20
    traffic.save(4, tools=("other",))
    assert (await compare(traffic, Scoring(0.0))).measurements["trajectories"] == 24, "another agent of today"


async def test_an_engine_that_is_away_is_waited_for():
    engine = Scoring(0.0)
    engine.down = True
    with pytest.raises(DependencyUnavailable):
        await compare(Traffic().save(20), engine)


@pytest.mark.parametrize(("good", "decision"), [(1, "reject"), (9, "promote")])
@pytest.mark.parametrize("runs", [5, 20, 400])
async def test_a_flood_of_lies_changes_no_verdict(good: int, decision: str, runs: int):
    """All runs of one party are reported, each the wrong way round, with any tool list."""
    traffic = honest(good)
    assert (await judged(traffic)).decision == decision
    for number in range(4):
        traffic.save(runs // 4, 10 - good, tenant="liar", tools=(("win",), ("made up",))[number % 2])
    found = await judged(traffic)
    figures = found.measurements
    assert found.decision == decision, found.reason
    assert (figures["parties_bind"], figures["parties_aside"]) == (1, 2)
    assert figures["parties"] == 5 or runs < 4 * 4


async def test_what_one_party_writes_does_not_put_a_candidate_too_far_away():
    traffic = honest(9).save(20, 9, tenant="strange", ids=(99,))
    found = await compare(traffic, Scoring(SHIFT, 0.02, strange=1.5), DEFAULTS)
    assert (found.decision, found.measurements["drift_kl"] < 0.1) == ("promote", True), found.reason


@pytest.mark.parametrize(
    ("callers", "each", "bind", "aside"), [(("",), 80, 0, 0), (("k1", "k2", "k3", "k4"), 16, 1, 2)],
    ids=["one key alone", "keys of one tenant"],
)  # fmt: skip
async def test_a_key_is_a_party_of_its_own_within_its_tenant(callers, each, bind, aside):
    traffic = Traffic()
    for caller in callers:
        traffic.save(each, 9, caller=caller)
    found = await judged(traffic)
    figures = found.measurements
    assert (found.decision, figures["trajectories"]) == ("promote", each * len(callers))
    assert (figures["parties"], figures["parties_bind"], figures["parties_aside"]) == (len(callers), bind, aside)


async def test_the_second_agents_rare_runs_are_evidence():
    traffic = Traffic()
    for _ in range(20):
        traffic.save(1, 9, tools=("rare",)).save(40, 9, reported=False).save(5, 9)
    found = await judged(traffic)
    assert (found.measurements["groups"], found.measurements["trajectories"]) == (2, 120)


@pytest.mark.parametrize(
    ("worse", "decision", "says", "figures"),
    [
        ([{"tenant": "a", "count": 40}], "promote", "agent a (other) is worse off: -0.", (1, 0)),
        ([{"tenant": "d", "count": 20, "caller": key} for key in ("k1", "k2", "k3")], "reject",
         "agent d (other) is worse off: -0.", (0, 1)),
        ([{"tenant": "a", "count": 10, "good": 4}], "promote", "", (0, 0)),
    ],
    ids=["one party alone says so", "three say so", "by chance"],
)  # fmt: skip
async def test_an_agent_that_is_surely_worse_off_vetoes(worse, decision, says, figures):
    traffic = honest(9, parties="abc" if len(worse) > 1 else "abcd", each=60)
    for runs in worse:
        traffic.save(**{"good": 0, "tools": ("other",), **runs})
    found = await judged(traffic)
    assert (found.decision, says in found.reason) == (decision, True), found.reason
    assert (found.measurements["groups_told"], found.measurements["groups_harmed"]) == figures
    assert ("one party alone says so" in found.reason) is bool(figures[0])
