"""The judge is away for an hour: nothing is lost, nothing but attribution waits, nobody hammers, and it catches up.

Real store, runner and supervisor with both lanes, as the daemon has them; only the clock is simulated.
"""

import random
from collections import Counter

import anyio
import pytest

from actors.credit.attributor import Attributor, AttributorSettings
from actors.credit.calibration import CalibrationSettings
from actors.messages import Attributed, Attribution, StepLabel, Trajectory
from actors.ports.errors import JudgeUnavailable
from actors.store import Store
from actors.system.actor import Received, Result
from actors.system.bus import outgoing
from actors.system.lifecycle import Lifecycle, Restart
from actors.system.outbox import RunnerSettings
from actors.system.runner import run_actor
from actors.system.streams import POLICY_DIRECTIVE, TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from actors.system.supervisor import Supervisor
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.support.stub_bus import StubBus
from tests.support.travelling import plays
from tests.unit.actors.system.conftest import Recorder, note

pytestmark = pytest.mark.anyio
DOWN, UP = 150.0, 3750.0
RUNS = 70


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
            raise JudgeUnavailable("503 for now")
        await anyio.sleep(2.0)
        self.answered[trajectory.id] += 1
        return Attribution(labels=(StepLabel("GOOD"),) * len(trajectory.steps), judge=self.name, rubric=self.rubric)


async def an_hour_without(judge: Endpoint, url: str) -> tuple[Store, Recorder, Attributor, Counter[str]]:
    """A trajectory a minute for 70 minutes, and a bystander that gets a note as often; then ten minutes more."""
    store = Store(url, clock=anyio.current_time)
    await store.open()
    bus, supervisor = StubBus(ack_wait=30.0), Supervisor(rng=random.Random(1), drain_seconds=200, watch_seconds=60)
    settings = AttributorSettings(calibration=CalibrationSettings(share=0.0))
    attributor = Attributor(settings, judge=judge, evidence=store, store=store, clock=anyio.current_time)
    bystander, got = Recorder(), Counter[str]()

    class Reader:
        name, inputs, batch, tick_seconds = "reader", (TRAJECTORY_ATTRIBUTED,), 100, None

        async def start(self) -> None: ...

        async def handle(self, batch: list[Received]) -> Result:
            got.update(item.message.id for item in batch)
            return Result()

        async def tick(self) -> Result:
            return Result()

    def act(actor, name: str) -> None:
        async def task(lifecycle: Lifecycle) -> None:
            await run_actor(
                actor, bus, store, lifecycle, rng=random.Random(name), settings=RunnerSettings(fetch_seconds=60)
            )

        supervisor.add(name, task, Restart(stall_seconds=900.0))

    act(attributor, "attributor")
    act(attributor, "attributor-2")
    act(bystander, "bystander")
    act(Reader(), "reader")

    async def traffic() -> None:
        for number, played in enumerate(plays(RUNS)):
            await store.save([played.trajectory])
            await bus.publish([outgoing(TRAJECTORY_CLOSED, played.trajectory)])
            await bus.publish([outgoing(POLICY_DIRECTIVE, note(f"n{number}"))])
            await anyio.sleep(60.0)
        await anyio.sleep(600.0)
        states = supervisor.state().actors
        assert {state.name: state.restarts for state in states} == dict.fromkeys((s.name for s in states), 0)
        supervisor.drain()

    async with anyio.create_task_group() as group:
        group.start_soon(traffic)
        assert await supervisor.run(signals=False)
    return store, bystander, attributor, got


@pytest.mark.promise
@pytest.mark.parametrize("hangs", [False, True], ids=["refusing", "hanging"])
async def test_an_hour_without_a_judge_loses_nothing_and_is_caught_up_with(tmp_path, hangs):
    judge = Endpoint(hangs=hangs)
    # In a file here: a clock that jumps when nobody runs does not wait for the answers of a server.
    store, bystander, attributor, got = await an_hour_without(judge, f"sqlite:///{tmp_path}/evolved.db")
    runs = [played.trajectory.id for played in plays(RUNS)]
    # Each came out once, and everybody behind got it.
    assert got == Counter(runs)
    assert (await store.counts())["dead_letters"] == 0
    # The bystander had its note when it came, all the while.
    assert bystander.handled == [f"n{number}" for number in range(RUNS)]
    found = [await store.trajectory(run) for run in runs]
    silent = [
        one.id for one in found
        if isinstance(one, Attributed) and all(label.label == "ABSTAIN" for label in one.attribution.labels)
    ]  # fmt: skip
    assert all(isinstance(one, Attributed) for one in found)
    assert silent == []
    # None was paid for twice.
    assert max(judge.answered.values()) == 1
    away = [at for at in judge.asked if DOWN <= at < UP]
    assert len(away) < 40
    # It was back at work within the longest wait, a question that still hung, and the runner's wait.
    assert min(at for at in judge.asked if at >= UP) < UP + 300 + 120 + 45
    assert attributor.counts["judged"] + attributor.counts["cached"] == RUNS
    await store.aclose()


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
    settings = AttributorSettings(calibration=CalibrationSettings(share=0.0))
    for _ in range(2):
        actor = Attributor(settings, judge=judge, store=store, clock=anyio.current_time)
        await actor.start()
        result = await actor.handle(batch)
        costs = [record.attribution.cost for record in result.records if isinstance(record, Attributed)]
        assert actor.spent.money_day == 10.0
    assert len(judge.asked) == 20
    assert sum(costs) == 0.0
    (own, everywhere) = [page for page in actor.pages() if page.tenant in ("default", "*")]
    assert (own.judged, own.cached, own.tokens) == (everywhere.judged, everywhere.cached, 2000) == (20, 20, 2000)
    await store.aclose()
