"""How far a candidate moved, on production tokens."""

import msgspec
import pytest

from actors.gate.drift import DriftCheck, DriftSettings
from actors.kinds.holdout import held_out
from actors.messages import pack_array
from actors.system.errors import DependencyUnavailable
from tests.support.fakes import FakeEngine, FakeStore
from tests.unit.actors.gate.test_replay_trial import IDS, production, store_of

pytestmark = pytest.mark.anyio
SETTINGS = DriftSettings(most=150)
ENOUGH = 130
"""Runs of four tokens each: a few more than 512."""


class Counting(FakeEngine):
    """Remembers the first id of what it scored."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[int] = []

    async def log_probs(self, ids):
        self.first.append(ids[0])
        return await super().log_probs(ids)


async def report(engine: FakeEngine, store, settings: DriftSettings = SETTINGS):
    check = DriftCheck(settings, engine=engine, store=store)
    await check.gather()
    engine.current = 1
    mine = await check.measure()
    engine.current = 0
    return check.judge(mine, await check.measure())


async def test_the_same_weights_have_not_moved():
    found = await report(FakeEngine(), store_of(ENOUGH))
    assert found.findings == ()
    assert (found.figures["drift_kl"], found.figures["drift_surprise"], found.figures["drift_tokens"]) == (
        0,
        0,
        4 * ENOUGH,
    )


async def test_tokens_are_those_of_every_agent_and_no_partys_flood():
    store = FakeStore()
    for number, name in enumerate(IDS[:100]):
        item = production(name, float(number), outcome=None, tools=("rare",) if number == 0 else ("win",))
        run = msgspec.structs.replace(item.trajectory, tenant="flood" if number >= 30 else "abc"[number % 3])
        ids = pack_array([number, *range(5)], "<i4")
        row = msgspec.structs.replace(run.rows[0], ids=ids)
        store.save([msgspec.structs.replace(item, trajectory=msgspec.structs.replace(run, rows=(row,)))])
    engine = Counting()
    check = DriftCheck(DriftSettings(most=16), engine=engine, store=store)
    assert await check.gather() == 16
    await check.measure()
    assert sum(number >= 30 for number in engine.first) == 4, "of four parties"
    assert 0 in engine.first, "the second agent's only run is the oldest of all"


async def test_weights_that_moved_too_far_are_found_with_the_number_and_the_limit():
    engine = FakeEngine()
    engine.scores = {1: -3.0, 0: -0.5}
    found = await report(engine, store_of(ENOUGH))
    assert [finding.kind for finding in found.findings] == ["drift", "drift"]
    assert "1.582 nats a token from the incumbent on production tokens, 0.5 are allowed" in found.findings[0].reason
    assert found.figures["drift_surprise"] == pytest.approx(2.5)


async def test_few_tokens_are_measured_and_conclude_nothing():
    engine = FakeEngine()
    engine.scores = {1: -3.0}
    found = await report(engine, store_of(10))
    assert found.findings == ()
    assert found.figures["drift_kl"] > 1


async def test_only_held_out_production_is_scored_and_only_so_many_rows():
    store = store_of(10)
    store.save([production("not held out", 90.0, outcome=1.0)])
    assert not held_out("not held out")
    assert await DriftCheck(SETTINGS, engine=FakeEngine(), store=store).gather() == 10
    assert await DriftCheck(DriftSettings(most=4), engine=FakeEngine(), store=store).gather() == 4
    assert await DriftCheck(DriftSettings(most=0), engine=FakeEngine(), store=store).gather() == 0


async def test_an_engine_that_is_away_is_waited_for():
    engine = FakeEngine()
    engine.down = True
    with pytest.raises(DependencyUnavailable):
        await report(engine, store_of(10))
