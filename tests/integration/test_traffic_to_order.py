"""From calls to an order to train: assembler, attributor and curator under the real runner, on the real store.

Half way everything is cut off without warning, as by kill -9, and started anew on what store and bus have.
"""

import random
import time
from pathlib import Path

import anyio
import pytest

from actors.credit.attributor import Attributor, AttributorSettings
from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.messages import Attribution, BatchOrder, StepLabel, Trajectory, decode, decode_batch
from actors.store import Store
from actors.system.bus import outgoing
from actors.system.lifecycle import Lifecycle
from actors.system.runner import run_actor
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK, WORK_TRAIN
from actors.system.supervisor import Supervisor
from actors.trajectories.assembler import Assembler, AssemblerSettings
from tests.support.patience import until
from tests.support.stub_bus import StubBus
from tests.support.traffic import exchange, feedback

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
RUNS, STEPS = [f"run{number}" for number in range(8)], 3


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Yes:
    """A judge."""

    name, rubric = "yes", "1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        return Attribution(labels=(StepLabel("GOOD"),) * len(trajectory.steps), judge=self.name, rubric=self.rubric)


async def live(bus: StubBus, path: Path, url: str, done) -> None:
    """One life of the daemon, cut off when `done` says so."""
    store = Store(url, clock=time.time)
    await store.open()
    supervisor = Supervisor(rng=random.Random(0))
    traffic = AssemblerSettings()
    rules = CuratorSettings(groups_per_batch=0, production_per_batch=len(RUNS))
    actors = (
        Assembler(traffic, store=store, clock=time.time),
        Attributor(AttributorSettings(), judge=Yes()),
        Curator(rules, store=store, batches=path / "batches", clock=time.time, exam=lambda key: False),
    )
    for actor in actors:

        async def task(lifecycle: Lifecycle, actor=actor) -> None:
            await run_actor(actor, bus, store, lifecycle, rng=random.Random(1))

        supervisor.add(actor.name, task)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: supervisor.run(signals=False))
        await until(lambda: done(store), "this life is over")
        group.cancel_scope.cancel()
    await store.aclose()


async def test_calls_become_one_order_through_a_crash(tmp_path: Path, store_url: str) -> None:
    bus = StubBus(ack_wait=1.0)
    calls = [outgoing(TRAFFIC_EXCHANGE, exchange(run, number)) for number in range(STEPS) for run in RUNS]
    said = [outgoing(TRAFFIC_FEEDBACK, feedback(run, STEPS - 1, number % 2)) for number, run in enumerate(RUNS)]
    half = len(calls) // 2
    await bus.publish(calls[:half])

    async def some_are_stored(store: Store) -> bool:
        return (await store.counts())["exchanges"] > 0

    await live(bus, tmp_path, store_url, some_are_stored)
    await bus.publish([*said, *calls[half:]])

    async def ordered(_: Store) -> bool:
        return any(item.subject == WORK_TRAIN for item in bus.published)

    await live(bus, tmp_path, store_url, ordered)
    (order,) = [decode(item.data) for item in bus.published if item.subject == WORK_TRAIN]
    assert isinstance(order, BatchOrder)
    items = decode_batch(await anyio.Path(order.path).read_bytes())
    runs = [item.attributed.trajectory for item in items]
    assert sorted(run.goal for run in runs) == [f"goal of {run}" for run in RUNS]
    assert [len(run.steps) for run in runs] == [STEPS] * len(RUNS)
    assert {run.outcome for run in runs} == {0.0, 1.0}
    assert order.production == len(RUNS)
