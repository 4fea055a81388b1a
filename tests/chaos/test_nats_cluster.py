"""A NATS cluster of the user's own: three real servers with TLS and a password, streams with three copies, and kill -9
of the one that leads them in mid-traffic. Nothing is lost, nothing is handled twice, and the bus goes on."""

import asyncio
import time
from pathlib import Path

import pytest

from actors.system.access import Access
from actors.system.bus import Bus
from actors.system.errors import BusUnavailable
from actors.system.outgoing import Outgoing
from actors.system.streams import TRAFFIC_EXCHANGE
from tests.support.certificates import Authority
from tests.support.nats import same_loop
from tests.support.nats_cluster import PASSWORD, Server, cluster, tls, user
from tests.support.patience import wait_until, within

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(within(450)), pytest.mark.promise]

BEFORE, DURING = 400, 1600


def leader(servers: list[Server], stream: str = "TRAFFIC") -> Server:
    """The server that leads the stream; on a busy machine they may be electing one."""
    found: list[Server] = []

    def elected() -> bool:
        for one in servers:
            told = one.ask("jsz?streams=true&config=true")
            for account in told.get("account_details", ()):
                for detail in account.get("stream_detail", ()):
                    if detail["name"] == stream and detail["cluster"].get("leader") == one.name:
                        assert detail["config"]["num_replicas"] == 3
                        found.append(one)
        return bool(found)

    wait_until(elected, f"a server leads {stream}", every=0.2)
    return found[0]


def test_the_server_that_leads_the_streams_is_killed_in_mid_traffic(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "password").write_text(PASSWORD)
    with cluster(tmp_path, f"{tls(authority.certificate('server', '127.0.0.1'))}\n{user()}") as servers:
        settings = Access(
            servers=tuple(one.url.replace("nats:", "tls:") for one in servers),
            user="evolved",
            secret_file=str(tmp_path / "password"),
            ca_file=str(authority.chain),
            replicas=3,
        )
        confirmed, handled = asyncio.run(_traffic(settings, servers, tmp_path))
    assert len(confirmed) == BEFORE + DURING
    assert set(handled) == confirmed
    assert len(handled) == len(confirmed)


async def _opened(bus: Bus) -> None:
    """As the daemon does it: three servers that have just met may be electing who leads a stream for a while."""
    end = time.monotonic() + within()
    while time.monotonic() < end:
        try:
            return await bus.open()
        except BusUnavailable:
            await asyncio.sleep(2)
    await bus.open()


async def _traffic(settings: Access, servers: list[Server], tmp_path: Path) -> tuple[set[str], list[str]]:
    bus, reader = (Bus(same_loop, settings, claims=tmp_path / "claims") for _ in range(2))
    await _opened(bus)
    await _opened(reader)
    subscription = await reader.subscribe("reader", [TRAFFIC_EXCHANGE])
    confirmed: set[str] = set()
    handled: list[str] = []

    async def send(first: int, last: int) -> None:
        for number in range(first, last, 20):
            items = [Outgoing(TRAFFIC_EXCHANGE, f"r{n}", b"x" * 500) for n in range(number, min(number + 20, last))]
            while True:
                try:
                    # As the shipper does: the same ids until they are confirmed.
                    await bus.publish(items)
                    break
                except BusUnavailable:
                    await asyncio.sleep(0.2)
            confirmed.update(item.id for item in items)
            await asyncio.sleep(0.02)

    async def read() -> None:
        known: set[str] = set()
        end = time.monotonic() + within(300)
        while len(handled) < BEFORE + DURING and time.monotonic() < end:
            for delivery in await subscription.fetch(50, 1.0):
                # As the ledger does.
                if delivery.id not in known:
                    known.add(delivery.id)
                    handled.append(delivery.id)
                await subscription.ack([delivery])
        # What would come twice, comes now.
        handled.extend(one.id for one in await subscription.fetch(50, 1.0) if one.id not in known)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await send(0, BEFORE)
        victim = await asyncio.to_thread(leader, servers)
        await asyncio.to_thread(victim.kill)
        group.create_task(send(BEFORE, BEFORE + DURING))
    victim.start()
    await asyncio.to_thread(victim.until_up)
    leading = await asyncio.to_thread(leader, servers)
    stored = (await asyncio.to_thread(leading.ask, "jsz?streams=true"))["account_details"][0]["stream_detail"]
    assert {one["name"]: one["state"]["messages"] for one in stored}["TRAFFIC"] == BEFORE + DURING
    await reader.aclose()
    await bus.aclose()
    return confirmed, handled
