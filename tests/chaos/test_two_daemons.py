"""Two daemons on one NATS and one PostgreSQL; the one that leads is stopped, cut off, killed at work and in mid-swap.

Real processes all: nats-server, PostgreSQL, tap, engines, daemons, and agents that talk all the while.
"""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from actors.store.leases import LEAD_SECONDS
from tests.support.daemons import Daemons, two_daemons
from tests.support.patience import Late, until, within
from tests.support.pipeline import Agents
from tests.support.swapping import Door, swap_programs

pytestmark = [
    pytest.mark.anyio, pytest.mark.chaos, pytest.mark.torch, pytest.mark.promise, pytest.mark.timeout(within(900)),
]  # fmt: skip
AWAY_SECONDS = 10.0
"""Twice the lease."""
MID_SWAP = (0.2, 0.0, 0.6)
"""Seconds from the swap program's start to the leader's end."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def swapped(daemons: Daemons, version: int) -> bool:
    return (version, "swapped") in await daemons.swaps()


async def followed(daemons: Daemons, dead: str, what: str) -> None:
    """The other one leads, under another epoch."""
    began = time.monotonic()
    await daemons.leader(dead)
    print(f"the leader {what}: the other one leads after {time.monotonic() - began:.1f} s")


async def mid_swap(daemons: Daemons, version: int, delay: float) -> None:
    """A version is promoted, and the leader dies while it is swapped in."""
    await daemons.learned(version)
    leader = await daemons.leader()
    answer = await daemons.order(leader, "promote", {"version": version, "force": True, "reason": "drill"})
    assert answer.status_code == 200, answer.text
    await until(lambda: swap_programs(daemons.config.state), "the swap begins", 120, every=0.005)
    await asyncio.sleep(delay)
    daemons.daemons[leader].signal(signal.SIGKILL)
    await followed(daemons, leader, f"was killed {delay} s into a swap")
    await until(lambda: swapped(daemons, version), f"version {version} is served", 120, every=0.1)
    await daemons.all_up()


async def away(daemons: Daemons, what: str) -> None:
    """The leader hangs, or has no way to the database, for twice its lease, and then it is back."""
    leader, epoch = await daemons.leader(), daemons.epoch()
    child, began = daemons.daemons[leader], time.monotonic()
    pid = child.pid
    if what == "was stopped":
        child.signal(signal.SIGSTOP)
    else:
        daemons.cut_off(leader)
    await followed(daemons, leader, what)
    assert daemons.epoch() > epoch
    await asyncio.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - began)))
    assert child.pid == pid, "it is there still"
    if what == "was stopped":
        child.signal(signal.SIGCONT)
    else:
        daemons.join(leader)
    await until(lambda: daemons.events(leader, "lead_lost"), "it noticed, and ends")
    await daemons.all_up()
    assert await daemons.leader() != leader, "it waits"
    assert child.restarts == 1


async def test_work_goes_on_and_nothing_is_done_twice_whoever_leads(tmp_path: Path) -> None:
    assert AWAY_SECONDS >= 2 * LEAD_SECONDS
    async with two_daemons(tmp_path) as (daemons, engine), asyncio.TaskGroup() as group:
        agents = Agents(daemons.tap_port, "go", max_tokens=4)
        talking = group.create_task(agents.talk(100_000, connections=4, per_second=12.0))
        await until(lambda: agents.calls > 40, "agents are at work")
        for what in ("was stopped", "was cut off from the database"):
            await away(daemons, what)
        leader = await daemons.leader()
        daemons.daemons[leader].signal(signal.SIGKILL)
        await followed(daemons, leader, "was killed")
        await daemons.all_up()
        for version, delay in enumerate(MID_SWAP, start=1):
            await mid_swap(daemons, version, delay)
        leader = await daemons.leader()
        ended = asyncio.create_task(asyncio.to_thread(daemons.daemons[leader].stop))
        await followed(daemons, leader, "was told to end")
        await ended
        agents.enough()
        await talking
        await settled(daemons, agents)
        await once(daemons, engine)


async def settled(daemons: Daemons, agents: Agents) -> None:
    """Every call is in one trajectory, and each trajectory was attributed once."""

    def done() -> bool:
        account = daemons.account(agents)
        return not (account.lost or account.loose or account.unattributed)

    with contextlib.suppress(Late):  # what has not come by then is lost: below
        await until(lambda: asyncio.to_thread(done), "everything has arrived", 300, every=0.2)
    account, steps = daemons.account(agents), daemons.steps()
    assert account.exchanges > 200
    assert (account.lost, account.doubled, account.loose) == (0, 0, 0)
    assert (account.unattributed, account.attributed_twice) == (0, 0)
    assert account.client_errors == 0
    seen = [response for run in agents.runs for response in run]
    assert Counter(steps[response] for response in seen) == {1: len(seen)}


async def once(daemons: Daemons, engine: Door) -> None:
    """One swap a version, in the books and at the engine."""
    swaps = await daemons.swaps()
    assert swaps == [(0, "started"), *((version, "swapped") for version in range(1, len(MID_SWAP) + 1))]
    assert engine.count == len(MID_SWAP)
    assert len(engine.pauses) == len(MID_SWAP)
