"""The gate without a sandbox."""

import json

import msgspec
import pytest

from actors.holdout import held_out
from actors.messages import Attributed, Attribution, Step, StepLabel, TokenRow, Trajectory, pack_array
from actors.replay_trial import ReplayTrial, ReplayTrialSettings
from actors.system.errors import DependencyUnavailable
from tests.support.fakes import FakeEngine, FakeStore

pytestmark = pytest.mark.anyio
SETTINGS = ReplayTrialSettings(least=10, most=40, margin=0.1)
IDS = [name for name in (f"t{number}" for number in range(2000)) if held_out(name)][:60]
TOKENS = 4


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


def production(name: str, ended: float, *, outcome: float | None, version: int = 0, tools=("win",), temperature=1.0):
    row = TokenRow(
        ids=pack_array(range(2 + TOKENS), "<i4"),
        step=pack_array([-1, -1] + [0] * TOKENS, "<i2"),
        logprobs=pack_array([0, 0] + [-0.5] * TOKENS, "<f4"),
        versions=pack_array([-1, -1] + [version] * TOKENS, "<i4"),
        temperature=temperature,
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


def store_of(count: int, version: int = 0) -> FakeStore:
    """Every other trajectory succeeded and carries the marker."""
    store = FakeStore()
    for number, name in enumerate(IDS[:count]):
        item = production(name, float(number), outcome=float(number % 2), version=version)
        row = item.trajectory.rows[0]
        ids = pack_array([number % 2, *range(1, 2 + TOKENS)], "<i4")
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


async def test_little_evidence_is_held():
    comparison = await compare(store_of(9), Scoring(0.05))
    assert (comparison.decision, comparison.measurements["trajectories"]) == ("hold", 9)


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
    store.save([production(IDS[30], 50.0, outcome=None), production(IDS[31], 51.0, outcome=1.0, temperature=0.7)])
    store.save([production(IDS[32], -1.0, outcome=1.0, tools=("old",))])
    comparison = await compare(store, Scoring(0.0))
    assert comparison.measurements["trajectories"] == 20


async def test_an_engine_that_is_away_is_waited_for():
    engine = Scoring(0.0)
    engine.down = True
    with pytest.raises(DependencyUnavailable):
        await compare(store_of(20), engine)
