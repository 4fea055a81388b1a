"""What the learner gave up is in the store's table, once, and goes back to where it came from."""

import random
import time
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.store import Store
from actors.system.actor import DeadLetter
from actors.system.outgoing import Outgoing
from actors.system.streams import WORK_TRAIN
from actors.system.supervisor import Supervisor
from daemon.errors import OrderRefused
from daemon.ingest.dead_letters import collect, put_back
from tests.support.patience import until
from tests.support.stub_bus import StubBus

pytestmark = pytest.mark.anyio


async def test_what_the_learner_gave_up_is_listed_once_and_goes_back(tmp_path: Path) -> None:
    bus, store = StubBus(), Store(f"sqlite:///{tmp_path}/store.db", clock=time.time)
    await store.open()
    order = DeadLetter(actor="learner", input_id="work.train:o", subject=WORK_TRAIN, data=b"order", error="no memory")
    letters = [
        Outgoing("dead.learner", "dead.learner:o", msgspec.msgpack.encode(order)),
        Outgoing("dead.other", "strange", b"strange"),
    ]  # fmt: skip
    bus.down = True
    supervisor = Supervisor(rng=random.Random(0))
    supervisor.add("dead_letters", partial(collect, bus, store))
    async with anyio.create_task_group() as group:
        group.start_soon(partial(supervisor.run, signals=False))
        await until(lambda: supervisor.state()[0].status == "waiting", "it waits for the broker")
        bus.down = False
        await bus.publish(letters)
        for one in letters:  # as after an ack that was lost
            await bus.publish([msgspec.structs.replace(one, id=f"{one.id} again")])

        async def all_read() -> bool:
            depth = (await bus.depth()).get("dead_letters")
            return depth is not None and (depth.waiting, depth.in_flight) == (0, 0)

        await until(all_read, "all are acked")
        supervisor.drain()
    listed = await store.dead_letters()
    assert len(listed) == 3, "the strange one has no id of its own"
    found = {(one["actor"], one["error"].partition(":")[0]): one["id"] for one in listed}
    bus.published.clear()
    assert await put_back(bus, store, found["learner", "no memory"])
    (back,) = bus.published
    assert (back.subject, back.data) == (WORK_TRAIN, b"order")
    strange = next(dead_id for (actor, _), dead_id in found.items() if actor == "other")
    with pytest.raises(OrderRefused, match="no subject"):
        await put_back(bus, store, strange)
    assert not await put_back(bus, store, found["learner", "no memory"]), "it is off the list"
    assert {one["actor"] for one in await store.dead_letters()} == {"other"}
    await store.aclose()
