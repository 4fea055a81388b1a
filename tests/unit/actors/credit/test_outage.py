"""The judge is away for an hour: nothing is lost, nothing but attribution waits, nobody hammers, and it catches up."""

import random
from collections import Counter

import anyio
import pytest

from actors.credit.attributor import Attributor
from actors.messages import Attributed, Attribution, StepLabel, Trajectory
from actors.ports.errors import ModelUnavailable
from actors.store import Store
from actors.system.actor import Received
from actors.system.outgoing import outgoing
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from actors.system.supervisor import Supervisor
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.support.travelling import plays
from tests.unit.actors.system.conftest import Recorder, Rig

pytestmark = pytest.mark.anyio
DOWN, UP = 150.0, 3750.0
RUNS = 70


@pytest.fixture(autouse=True)
def nothing_is_asked_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.credit.attributor.BLIND_SHARE", 0.0)


class Endpoint:
    """A judge that takes 2 s, and is down from DOWN to UP, refusing or silent."""

    name, rubric = "endpoint", "1"

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs, self.began = hangs, anyio.current_time()
        self.asked: list[float] = []
        self.answered: Counter[str] = Counter()

    async def label(self, trajectory: Trajectory) -> Attribution:
        now = anyio.current_time() - self.began
        self.asked.append(now)
        if DOWN <= now < UP:
            if self.hangs:
                await anyio.sleep_forever()
            raise ModelUnavailable("503 for now")
        await anyio.sleep(2.0)
        self.answered[trajectory.id] += 1
        return Attribution(labels=(StepLabel("GOOD"),) * len(trajectory.steps), judge=self.name, rubric=self.rubric)


@pytest.mark.promise
@pytest.mark.parametrize("hangs", [False, True], ids=["refusing", "hanging"])
async def test_an_hour_without_a_judge_loses_nothing_and_is_caught_up_with(hangs, monkeypatch):
    """A trajectory a minute for 70 minutes, and a bystander that gets a note as often; then ten minutes more."""
    monkeypatch.setattr("actors.system.runner.FETCH_SECONDS", 60.0)
    rig, judge, bystander = Rig(), Endpoint(hangs=hangs), Recorder()
    rig.supervisor = Supervisor(rng=random.Random(1), drain_seconds=200, watch_seconds=60)
    attributor = Attributor(judge=judge, clock=anyio.current_time)
    for actor, lane in ((attributor, ""), (attributor, "-2"), (bystander, "")):
        rig.add(actor, stall_seconds=900.0, lane=lane)
    runs = [played.trajectory for played in plays(RUNS)]

    async def come(number: int) -> None:
        await rig.bus.publish([outgoing(TRAJECTORY_CLOSED, runs[number])])
        await rig.publish(f"n{number}")

    minutes = [(60.0 * number, lambda number=number: come(number)) for number in range(RUNS)]
    assert await rig.run_for(60.0 * RUNS + 600.0, *minutes)
    assert {state.restarts for state in rig.supervisor.state()} == {0}
    # Each came out once, with a judge's word on it.
    assert sorted(rig.out(TRAJECTORY_ATTRIBUTED)) == sorted(f"{TRAJECTORY_ATTRIBUTED}:{run.id}" for run in runs)
    assert rig.ledger.parked == []
    made = [record for record in rig.ledger.records.values() if isinstance(record, Attributed)]
    assert {label.label for one in made for label in one.attribution.labels} == {"GOOD"}
    # The bystander had its note when it came, all the while.
    assert bystander.handled == [f"n{number}" for number in range(RUNS)]
    # None was paid for twice.
    assert max(judge.answered.values()) == 1
    assert len([at for at in judge.asked if DOWN <= at < UP]) < 40
    # It was back at work within the longest wait, a question that still hung, and the runner's wait.
    assert min(at for at in judge.asked if at >= UP) < UP + 300 + 120 + 45
    assert attributor.counts["judged"] + attributor.counts["cached"] == RUNS


async def test_what_was_spent_and_judged_outlives_a_restart(store_url):
    store = Store(store_url, clock=anyio.current_time)
    await store.open()

    class Priced(Endpoint):
        async def label(self, trajectory: Trajectory) -> Attribution:
            self.asked.append(0.0)
            labels = (StepLabel("GOOD"),) * len(trajectory.steps)
            return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=100, cost=0.5)

    judge = Priced()
    batch = [Received(p.trajectory.id, TRAJECTORY_CLOSED, p.trajectory) for p in plays(20)]
    for _ in range(2):
        actor = Attributor(judge=judge, store=store, clock=anyio.current_time)
        await actor.start()
        result = await actor.handle(batch)
        costs = [record.attribution.cost for record in result.records if isinstance(record, Attributed)]
        assert actor.stats.today.money_day == 10.0
    assert len(judge.asked) == 20
    assert sum(costs) == 0.0
    (own, everywhere) = [page for page in actor.stats.all() if page.tenant in ("default", "*")]
    assert (own.tokens, everywhere.tokens, actor.counts["cached"]) == (2000, 2000, 20)
    await store.aclose()


async def test_what_was_paid_for_is_kept_though_the_process_is_killed_before_its_batch_is_done(store_url):
    class Priced(Endpoint):
        async def label(self, trajectory: Trajectory) -> Attribution:
            self.asked.append(0.0)
            if len(self.asked) == 6:
                await anyio.sleep_forever()
            labels = (StepLabel("GOOD"),) * len(trajectory.steps)
            return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=100)

    store = Store(store_url, clock=anyio.current_time)
    await store.open()
    judge = Priced()
    batch = [Received(p.trajectory.id, TRAJECTORY_CLOSED, p.trajectory) for p in plays(10)]
    with anyio.move_on_after(60.0):
        await Attributor(concurrency=1, judge=judge, store=store, clock=anyio.current_time).handle(batch)
    actor = Attributor(concurrency=1, judge=judge, store=store, clock=anyio.current_time)
    await actor.start()
    assert actor.stats.today.tokens_day == 500
    await actor.handle(batch)
    assert len(judge.asked) == 6 + 5
    await store.aclose()
