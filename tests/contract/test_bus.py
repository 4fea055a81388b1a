"""What every bus promises: the stub in memory and JetStream pass the same tests."""

import itertools

import anyio
import pytest

from actors.system.bus import Bus
from actors.system.errors import BusMisconfigured, BusUnavailable
from actors.system.outgoing import Outgoing
from actors.system.streams import Stream
from tests.support.nats import opened_bus, running_broker, same_loop
from tests.support.patience import until, within
from tests.support.stub_bus import StubBus

pytestmark = pytest.mark.anyio
_numbers = itertools.count()


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def broker(tmp_path_factory):
    async with running_broker(tmp_path_factory.mktemp("nats")) as broker:
        yield broker


class Bench:
    """A bus with streams of this test alone."""

    def __init__(self, bus: Bus, prefix: str) -> None:
        self.bus, self.prefix = bus, prefix

    def subject(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    async def publish(self, name: str, *ids: str, data: bytes = b"x") -> None:
        await self.bus.publish([Outgoing(self.subject(name), record, data) for record in ids])

    async def subscribe(self, durable: str, *names: str):
        return await self.bus.subscribe(f"{self.prefix}-{durable}", [self.subject(name) for name in names])

    async def at_rest(self, durable: str) -> bool:
        """Whether nothing waits for `durable`, and every ack has arrived."""
        depth = (await self.bus.depth())[f"{self.prefix}-{durable}"]
        return (depth.waiting, depth.in_flight) == (0, 0)


@pytest.fixture
def ack_wait() -> float:
    """So long that nothing comes again: a test of what comes again sets its own."""
    return 30.0


@pytest.fixture(params=["stub", "nats"])
async def bench(request, broker, tmp_path, ack_wait):
    prefix = f"t{next(_numbers)}"
    streams = (
        Stream(name=f"{prefix}-log", subjects=(f"{prefix}.a", f"{prefix}.b"), max_bytes=1 << 20),
        Stream(name=f"{prefix}-other", subjects=(f"{prefix}.other.>",), max_bytes=1 << 20),
        Stream(name=f"{prefix}-queue", subjects=(f"{prefix}.job",), queue=True, max_bytes=1 << 20),
        Stream(name=f"{prefix}-small", subjects=(f"{prefix}.small",), discard_new=True, max_bytes=4096),
    )
    if request.param == "stub":
        yield Bench(StubBus(streams, ack_wait=ack_wait), prefix)
        return
    async with opened_bus(same_loop, broker, tmp_path, streams=streams, ack_wait=ack_wait) as bus:
        yield Bench(bus, prefix)


async def drained(subscription, wanted):
    """Ids of the `wanted` records that come, and of any that come shortly after them; acked."""
    ids = []
    while batch := await subscription.fetch(10, within() if len(ids) < wanted else 0.15):
        ids += [delivery.id for delivery in batch]
        await subscription.ack(batch)
    return ids


async def test_a_record_arrives_with_its_subject_id_and_bytes(bench):
    await bench.publish("a", "r1", data=b"hello")
    subscription = await bench.subscribe("d", "a")
    (delivery,) = await subscription.fetch(10, within())
    assert (delivery.subject, delivery.id, delivery.data) == (bench.subject("a"), "r1", b"hello")
    assert (delivery.attempts, delivery.problem) == (1, "")
    await subscription.ack([delivery])
    ids = [f"r{n}" for n in range(2, 27)]
    await bench.publish("a", *ids)
    assert await drained(subscription, 25) == ids, "in order"


async def test_a_repeated_id_is_stored_once(bench):
    await bench.publish("a", "r1", "r1")
    await bench.publish("a", "r1", "r2")
    assert await drained(await bench.subscribe("d", "a"), 2) == ["r1", "r2"]


async def test_a_subscription_gets_its_subjects_only(bench):
    await bench.publish("a", "r1")
    await bench.publish("b", "r2")
    for durable in ("one", "two"):
        assert await drained(await bench.subscribe(durable, "b"), 1) == ["r2"], "each durable sees every record"
    first, second = await bench.subscribe("d", "a"), await bench.subscribe("d", "a")
    assert [*await drained(first, 1), *await drained(second, 0)] == ["r1"], "holders of one share its records"


async def test_a_subscription_may_span_streams(bench):
    subscription = await bench.subscribe("d", "a", "other.x")
    await bench.publish("a", "r1")
    await bench.publish("other.x", "r2")
    assert sorted(await drained(subscription, 2)) == ["r1", "r2"]


async def test_a_waiting_fetch_wakes_up_for_a_record(bench):
    subscription = await bench.subscribe("d", "a")
    async with anyio.create_task_group() as group:
        group.start_soon(bench.publish, "a", "r1")
        with anyio.fail_after(within()):
            (delivery,) = await subscription.fetch(10, 3600.0)
    assert delivery.id == "r1"


async def test_nothing_is_lost_by_a_cancelled_fetch(bench):
    subscription = await bench.subscribe("d", "a")
    with anyio.move_on_after(0.05):
        await subscription.fetch(10, 3600.0)
    await bench.publish("a", "r1", "r2")
    assert await drained(subscription, 2) == ["r1", "r2"]


@pytest.mark.parametrize("ack_wait", [0.6])
async def test_an_unacked_record_comes_again_after_the_ack_wait(bench):
    await bench.publish("a", "r1")
    subscription = await bench.subscribe("d", "a")
    await subscription.fetch(1, within())
    (again,) = await subscription.fetch(1, within())
    assert (again.id, again.attempts) == ("r1", 2)


@pytest.mark.parametrize("ack_wait", [0.8])
async def test_a_record_in_progress_is_not_delivered_again(bench, ack_wait):
    await bench.publish("a", "r1")
    subscription = await bench.subscribe("d", "a")
    batch = await subscription.fetch(10, within())
    for _ in range(3):
        assert await subscription.fetch(10, ack_wait * 0.4) == []
        await subscription.in_progress(batch)


async def test_a_nak_with_delay_puts_the_record_off(bench):
    await bench.publish("a", "r1")
    subscription = await bench.subscribe("d", "a")
    await subscription.nak(await subscription.fetch(10, within()), 0.6)
    assert await subscription.fetch(10, 0.1) == []
    (again,) = await subscription.fetch(10, within())
    assert again.id == "r1"


@pytest.mark.parametrize("ack_wait", [600.0])  # whoever holds the durable next must not have to wait for it
async def test_a_durable_keeps_its_place_when_its_holder_leaves(bench):
    await bench.publish("a", "r1", "r2")
    first = await bench.subscribe("d", "a")
    batch = await first.fetch(2, within())
    if len(batch) < 2:  # a fetch does not wait until it has all that it may take
        batch += await first.fetch(1, within())
    (one, two) = batch
    await first.ack([one])
    await first.nak([two])
    await first.aclose()
    assert await drained(await bench.subscribe("d", "a"), 1) == ["r2"]


async def test_an_ack_empties_a_work_queue(bench):
    await bench.publish("job", "j1")
    subscription = await bench.subscribe("d", "job")
    assert await drained(subscription, 1) == ["j1"]
    await until(lambda: bench.at_rest("d"), "the queue is empty")


async def test_a_work_queue_has_one_durable(bench):
    await bench.subscribe("one", "job")
    with pytest.raises(BusMisconfigured):
        await bench.subscribe("two", "job")


async def test_a_full_stream_that_discards_new_refuses(bench):
    noise = bytes(range(256)) * 6
    ids = [f"r{n}" for n in range(20)]
    with pytest.raises(BusUnavailable, match="maximum bytes exceeded"):
        await bench.publish("small", *ids, data=noise)
    kept = await drained(await bench.subscribe("d", "small"), 1)
    assert 0 < len(kept) < 20
    assert set(kept) <= set(ids)


async def test_an_unknown_subject_is_refused(bench):
    with pytest.raises(BusMisconfigured):
        await bench.publish("nowhere", "r1")
    with pytest.raises(BusMisconfigured):
        await bench.subscribe("d", "nowhere")


async def test_depth_tells_what_waits_and_what_is_in_flight(bench):
    await bench.publish("a", "r1", "r2", "r3")
    subscription = await bench.subscribe("d", "a")
    batch = await subscription.fetch(1, within())
    depth = (await bench.bus.depth())[f"{bench.prefix}-d"]
    assert len(batch) == 1
    # A bus may have the next batch on its way while this one is worked on.
    assert depth.in_flight in (1, 2)
    assert depth.waiting + depth.in_flight == 3
    await subscription.ack(batch)

    async def moved() -> bool:
        return (await bench.bus.depth())[f"{bench.prefix}-d"].acked > depth.acked

    await until(moved, "the head moves")


async def test_the_tail_is_the_last_number_that_was_confirmed(bench):
    assert bench.bus.tail(bench.subject("a")).sequence == 0
    await bench.publish("a", "r1", "r2")
    await bench.publish("b", "r3")
    await bench.publish("a", "r1")
    tail = bench.bus.tail(bench.subject("a"))
    assert (tail.sequence, tail.losses) == (3, 0)
    bench.bus.remember(bench.subject("other.x"), 7)
    await bench.publish("other.x", "r1")
    await bench.publish("other.x", "r2")
    tail = bench.bus.tail(bench.subject("other.x"))
    assert (tail.sequence, tail.losses) == (2, 1), "a number given again is a loss"
