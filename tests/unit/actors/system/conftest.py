"""Every test here runs on trio with a mock clock: waits cost nothing, and two runs are the same."""

import random

import anyio
import pytest

from actors.messages import Directive
from actors.system.actor import Actor, Result
from actors.system.outgoing import Outgoing, outgoing
from actors.system.runner import drive
from actors.system.streams import POLICY_DIRECTIVE
from actors.system.supervisor import Supervisor
from tests.support.memory_ledger import MemoryLedger
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.support.stub_bus import StubBus


def note(record: str) -> Directive:
    """The smallest message there is."""
    return Directive(id=record, kind="drift", reason="", origin="test")


class Recorder(Actor):
    """An actor that remembers its batches and does what the test tells it to."""

    name = "recorder"
    inputs = (POLICY_DIRECTIVE,)
    batch = 10

    def __init__(self, reply=lambda batch: Result(), tick=lambda: Result()):
        self.reply, self.on_tick = reply, tick
        self.batches: list[list[str]] = []
        self.starts = 0

    async def start(self):
        self.starts += 1

    async def handle(self, batch):
        self.batches.append([item.message.id for item in batch])
        result = self.reply(batch)
        return await result if hasattr(result, "__await__") else result

    async def tick(self):
        return self.on_tick()

    @property
    def handled(self):
        return [record for batch in self.batches for record in batch]


class Rig:
    """A bus, a ledger and a supervisor with one actor."""

    def __init__(self):
        self.bus, self.ledger = StubBus(ack_wait=30.0), MemoryLedger()
        self.supervisor = Supervisor(rng=random.Random(1), drain_seconds=10)
        self.metrics = None

    def add(self, actor, lane="", backpressure=None, **how):
        async def task(lifecycle):
            rng = random.Random(2)
            await drive(
                actor, self.bus, self.ledger, lifecycle, rng=rng, metrics=self.metrics, backpressure=backpressure
            )

        self.supervisor.add(actor.name + lane, task, **how)

    async def publish(self, *records, subject=POLICY_DIRECTIVE):
        await self.bus.publish([outgoing(subject, note(record)) for record in records])

    async def run_for(self, seconds, *steps):
        """Run, doing each (at, step) on the way, and drain after `seconds`; True if the drain was clean."""
        clean = None

        async def drive():
            began = anyio.current_time()
            for at, step in steps:
                await anyio.sleep_until(began + at)
                await step()
            await anyio.sleep_until(began + seconds)
            self.supervisor.drain()

        async with anyio.create_task_group() as group:
            group.start_soon(drive)
            clean = await self.supervisor.run(signals=False)
            group.cancel_scope.cancel()
        return clean

    def out(self, subject):
        """Ids published on `subject`."""
        return [item.id for item in self.bus.published if item.subject == subject]

    async def copy(self, record_id="copy"):
        """The first record once more, as after a pause longer than the broker's window: another message id."""
        first = self.bus.published[0]
        await self.bus.publish([Outgoing(first.subject, record_id, first.data)])

    def dies_once(self, owner, name, when=lambda *arguments: True):
        """Kill -9 instead of the first call of `owner`'s method for whose arguments `when` is true."""
        method, died = getattr(owner, name), []

        async def dies(*arguments):
            if not died and when(*arguments):
                died.append(1)
                raise RuntimeError("kill -9")
            return await method(*arguments)

        setattr(owner, name, dies)


@pytest.fixture
def rig():
    return Rig()
