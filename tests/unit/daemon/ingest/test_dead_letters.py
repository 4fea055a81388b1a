"""What learner and spool gave up is in the store's table, once, and goes back to where it came from."""

import random
import time
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.messages import decode
from actors.store import Store
from actors.system.actor import DeadLetter
from actors.system.outgoing import Outgoing
from actors.system.streams import TRAFFIC_EXCHANGE, WORK_TRAIN
from actors.system.supervisor import Supervisor
from daemon.errors import OrderRefused
from daemon.ingest.conversion import dead
from daemon.ingest.dead_letters import collect, put_back
from tests.support.patience import until
from tests.support.stub_bus import StubBus
from tests.unit.daemon.ingest.test_shipper import call, key

pytestmark = pytest.mark.anyio


async def test_what_learner_and_spool_gave_up_is_listed_once_and_goes_back(tmp_path: Path) -> None:
    bus, store = StubBus(), Store(f"sqlite:///{tmp_path}/store.db", clock=time.time)
    await store.open()
    order = DeadLetter(actor="learner", input_id="work.train:o", subject=WORK_TRAIN, data=b"order", error="no memory")
    letters = [
        Outgoing("dead.learner", "dead.learner:o", msgspec.msgpack.encode(order)),
        dead(key(1), call(1), "a bug that was mended since"), dead(key(2), b"\x00 nothing", "no message"),
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
    assert len(listed) == 5, "the strange one has no id of its own"
    found = {(one["actor"], one["error"].partition(":")[0]): one["id"] for one in listed}
    bus.published.clear()
    for name in (("learner", "no memory"), ("spool", "a bug that was mended since")):
        assert await put_back(bus, store, found[name])
    back, mended = bus.published
    assert (back.subject, back.data) == (WORK_TRAIN, b"order")
    assert (mended.subject, decode(mended.data).id) == (TRAFFIC_EXCHANGE, key(1))
    with pytest.raises(OrderRefused, match="still cannot be read"):
        await put_back(bus, store, found["spool", "no message"])
    assert not await put_back(bus, store, found["learner", "no memory"]), "it is off the list"
    assert {one["actor"] for one in await store.dead_letters()} == {"spool", "other"}
    await store.aclose()
