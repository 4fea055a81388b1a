"""The bus and the runner on a real nats-server that is killed, and on both runtimes."""

import os
import random
from pathlib import Path

import anyio
import msgspec
import pytest
from nats.aio.client import Client
from prometheus_client import CollectorRegistry

from actors.messages import Directive
from actors.system import pull
from actors.system.actor import Actor, Output, Result
from actors.system.bus import Bus
from actors.system.errors import BusMisconfigured, BusUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.outgoing import Outgoing, outgoing
from actors.system.runner import drive
from actors.system.runtime import run
from actors.system.streams import POLICY_DIRECTIVE, POLICY_SERVING, TRAFFIC_EXCHANGE
from actors.system.supervisor import Supervisor
from tests.support.memory_ledger import MemoryLedger
from tests.support.nats import login, opened_bus, persistently, running_broker
from tests.support.patience import until, within

QUICK = {"answer_seconds": 0.5, "ack_wait": 1.0}
"""For tests in which nobody answers."""


def note(record):
    return Directive(id=record, kind="drift", reason="", origin="test")


class Relay(Actor):
    """Passes every directive on under a new id."""

    inputs = (POLICY_DIRECTIVE,)

    def __init__(self, name, rng=None):
        self.name, self.rng, self.seen = name, rng, []

    async def handle(self, batch):
        if self.rng is not None and self.rng.random() < 0.2:
            raise RuntimeError("chaos")
        self.seen += [item.message.id for item in batch]
        return Result(outputs=[Output(POLICY_SERVING, note(f"{item.message.id}-out")) for item in batch])


async def all_of(bus, durable, subject, count):
    """Ids of the records that `subject` holds, until `count` different ones were seen, and half a second longer.

    By the stream's own sequence: a delivery that comes again because its ack came late is no second record.
    """
    ids, subscription = {}, await persistently(bus.subscribe, durable, [subject])

    async def enough(timeout=1.0):
        batch = await subscription.fetch(500, timeout)
        ids.update({delivery.token.metadata.sequence.stream: delivery.id for delivery in batch})
        await subscription.ack(batch)
        return len(set(ids.values())) >= count

    await until(enough, f"{count} records of {subject}", 240)
    await enough(0.5)
    return list(ids.values())


@pytest.mark.promise
def test_nothing_is_lost_or_doubled_when_the_broker_is_killed_in_mid_stream(tmp_path, monkeypatch):
    monkeypatch.setattr("actors.system.runner.MAX_FAILURES", 1000)
    monkeypatch.setattr("actors.system.patience.FIRST_WAIT", 0.05)
    count, ledger = 3000, MemoryLedger()

    async def main(host):
        metrics = SystemMetrics(CollectorRegistry())
        async with (
            running_broker(tmp_path) as broker,
            opened_bus(host, broker, tmp_path, **QUICK, metrics=metrics) as bus,
        ):
            supervisor = Supervisor(rng=random.Random(1), drain_seconds=10)
            relay = Relay("relay", random.Random(2))

            async def task(lifecycle):
                await drive(relay, bus, ledger, lifecycle, rng=random.Random(3), metrics=metrics)

            async def feed():
                for start in range(0, count, 100):
                    items = [outgoing(POLICY_DIRECTIVE, note(f"n{n}")) for n in range(start, start + 100)]
                    await persistently(bus.publish, items)
                    await anyio.sleep(0.02)

            async def reap():
                for done in (count // 3, count * 2 // 3):
                    await until(lambda done=done: len(relay.seen) >= done, f"{done} were passed on", 120)
                    broker.kill()
                    await anyio.sleep(0.3)
                    await broker.start()

            supervisor.add("relay", task, max_restarts=1000)
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: supervisor.run(signals=False))
                group.start_soon(feed)
                group.start_soon(reap)
                await all_of(bus, "check", POLICY_SERVING, count)
                supervisor.drain()
            stored = await all_of(bus, "count", POLICY_SERVING, count)
            return stored, metrics.bus_disconnects._value.get()

    stored, disconnects = run(main)
    assert len(stored) == len(set(stored)) == count
    assert len(ledger.outbox) == count
    assert len(ledger.done) == count
    assert ledger.parked == []
    assert disconnects >= 2


@pytest.mark.parametrize(("many", "one"), [(TRAFFIC_EXCHANGE, POLICY_DIRECTIVE), (POLICY_DIRECTIVE, TRAFFIC_EXCHANGE)])
def test_a_stream_with_much_in_it_holds_up_no_other(tmp_path, many, one):
    async def main(host):
        async with running_broker(tmp_path) as broker, opened_bus(host, broker, tmp_path) as bus:
            subscription = await bus.subscribe("d", [TRAFFIC_EXCHANGE, POLICY_DIRECTIVE])
            assert await subscription.fetch(10, 0.2) == [], "a request stands with both"
            await bus.publish([Outgoing(many, f"m{n}", b"x") for n in range(300)])
            await bus.publish([Outgoing(one, "one", b"x")])
            for batches in range(30):
                found = await subscription.fetch(10, within())
                await subscription.ack(found)
                if "one" in {delivery.id for delivery in found}:
                    return batches
            return None

    assert run(main) < 5


def test_a_payload_above_the_limit_travels_by_claim_check_and_without_its_file_is_a_problem(tmp_path):
    big = os.urandom(3 << 20)
    records = [Outgoing(TRAFFIC_EXCHANGE, name, data) for name, data in (("big", big), ("small", b"s"))]

    async def main(host):
        async with running_broker(tmp_path, max_payload=1 << 20) as broker, opened_bus(host, broker, tmp_path) as bus:
            await bus.publish(records)
            (blob,) = (tmp_path / "claims").iterdir()
            assert blob.stat().st_size == len(big)
            await bus.publish([Outgoing(TRAFFIC_EXCHANGE, "gone", bytes(2 << 20))])
            for path in set((tmp_path / "claims").iterdir()) - {blob}:
                path.unlink()
            subscription, got = await bus.subscribe("d", [TRAFFIC_EXCHANGE]), {}
            while len(got) < 3:
                got.update({delivery.id: delivery for delivery in await subscription.fetch(10, within())})
            return got

    got = run(main)
    assert (got["big"].data, got["small"].data) == (big, b"s")
    assert got["gone"].problem.startswith("PayloadMissing")
    assert got["gone"].data == b""


def test_a_pending_fetch_is_cancelled_at_once_and_closing_waits_for_no_dead_broker(tmp_path, monkeypatch):
    monkeypatch.setattr(pull, "_EXPIRES", 3600.0)  # whoever waits until the server ends a pull request hangs

    async def main(host):
        async with running_broker(tmp_path) as broker:
            for alive in (True, False):
                async with opened_bus(host, broker, tmp_path) as bus:
                    subscription = await bus.subscribe("d", [TRAFFIC_EXCHANGE])
                    with anyio.fail_after(within()), anyio.move_on_after(0.1) as scope:
                        await subscription.fetch(10, 3600.0)
                    assert scope.cancelled_caught
                    if not alive:
                        broker.kill()
                    with anyio.fail_after(within()):
                        await bus.aclose()

    run(main)


def test_a_publish_while_the_broker_is_away_fails_in_bounded_time_and_may_be_repeated(tmp_path):
    async def main(host):
        async with running_broker(tmp_path) as broker, opened_bus(host, broker, tmp_path, **QUICK) as bus:
            await persistently(bus.publish, [Outgoing(TRAFFIC_EXCHANGE, "r1", b"x")])
            broker.kill()
            item = [Outgoing(TRAFFIC_EXCHANGE, "r2", b"x")]
            with anyio.fail_after(within()), pytest.raises(BusUnavailable):
                await bus.publish(item)
            await broker.start()
            await persistently(bus.publish, item)
            return await all_of(bus, "d", TRAFFIC_EXCHANGE, 2)

    assert run(main) == ["r1", "r2"]


def test_a_write_to_a_connection_that_is_closed_already_is_no_failure_of_the_actor(tmp_path, monkeypatch):
    """uvloop raises a RuntimeError for it, if nats-py has not heard yet that the connection is gone."""
    publish, rng = Client.publish, random.Random(0)

    async def publish_or_fail(client, subject, *arguments, **options):
        if rng.random() < 0.5:
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        await publish(client, subject, *arguments, **options)

    async def main(host):
        async with (
            running_broker(tmp_path) as broker,
            opened_bus(host, broker, tmp_path, **QUICK) as bus,
        ):
            subscription = await bus.subscribe("d", [TRAFFIC_EXCHANGE])
            monkeypatch.setattr(Client, "publish", publish_or_fail)
            seen = set()
            await persistently(bus.publish, [Outgoing(TRAFFIC_EXCHANGE, f"r{n}", b"x") for n in range(4)])

            async def all_came():
                batch = await subscription.fetch(1, 1.0)
                await subscription.ack(batch)
                seen.update(delivery.id for delivery in batch)
                return len(seen) == 4

            await until(all_came, "the records were delivered", 60)

    run(main)


def test_a_request_that_nobody_heard_is_made_again(tmp_path, monkeypatch):
    """As when the server that led the consumer dies: nobody says that the request is gone."""
    publish, asked = Client.publish, []

    async def unheard_at_first(client, subject, *arguments, **options):
        if ".MSG.NEXT." in subject:
            asked.append(subject)
            if len(asked) == 1:
                return
        await publish(client, subject, *arguments, **options)

    async def main(host):
        async with running_broker(tmp_path) as broker, opened_bus(host, broker, tmp_path) as bus:
            await bus.publish([Outgoing(TRAFFIC_EXCHANGE, "r1", b"x")])
            monkeypatch.setattr(Client, "publish", unheard_at_first)
            subscription = await bus.subscribe("d", [TRAFFIC_EXCHANGE])
            with anyio.fail_after(within()):
                return [one.id for one in await subscription.fetch(1, 3600.0)]

    assert run(main) == ["r1"]


def test_the_broker_wants_its_password_and_keeps_it_private(tmp_path):
    async def main(host):
        async with running_broker(tmp_path) as broker:
            modes = {path.name: path.stat().st_mode & 0o777 for path in broker.directory.glob("*.*")}
            command = Path(f"/proc/{broker.pid}/cmdline").read_bytes().decode()
            bus = Bus(host, msgspec.structs.replace(login(broker), password="x"), claims=tmp_path)
            with pytest.raises(BusMisconfigured, match="another NATS"):
                await bus.open()
            await bus.aclose()
            return modes, command, broker.credentials.password

    modes, command, password = run(main)
    assert modes["nats.conf"] == modes["credentials.json"] == 0o600
    assert password not in command
