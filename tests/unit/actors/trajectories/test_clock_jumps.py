"""The clock is set: nothing closes early, nothing stays open, nothing is lost, and the audit trail keeps its order."""

import time
from pathlib import Path

import pytest

from actors.credit.attributor import Attributor, AttributorSettings
from actors.credit.breaker import Breaker
from actors.messages import Attribution, Directive, Trajectory
from actors.store import Store
from actors.store.archive import ask
from actors.store.audit import entries, verify
from actors.system.streams import TRAFFIC_EXCHANGE
from actors.trajectories.assembler import Assembler, AssemblerSettings
from tests.support.driving import Driver
from tests.support.fakes import Clock
from tests.support.traffic import exchange

HOUR = 3600.0


@pytest.mark.anyio
async def test_an_hour_that_is_skipped_or_comes_twice_closes_nothing_early_and_keeps_nothing_open(
    tmp_path: Path,
) -> None:
    wall, ticks = Clock(1_000_000.0), Clock(50.0)
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=wall)
    await store.open()
    rules = AssemblerSettings(idle_seconds=60.0)
    driver = Driver(Assembler(rules, store=store, clock=wall, ticks=ticks), store)
    await driver.actor.start()
    await driver.feed(TRAFFIC_EXCHANGE, *(exchange(f"run{number}", 0) for number in range(50)))
    for jump in (HOUR, -2 * HOUR):
        wall.now += jump
        ticks.now += 10.0
        assert await driver.tick() == []
    ticks.now += 60.0
    closed = [item for item in await driver.tick() if isinstance(item, Trajectory)]
    assert len(closed) == 50
    await store.aclose()


def test_a_judge_that_was_away_is_asked_again_in_time_whatever_the_clock_says() -> None:
    wall, ticks = Clock(1_000_000.0), Clock(50.0)

    class Judge:
        name, rubric = "judge", "1"

        async def label(self, trajectory: Trajectory) -> Attribution:
            raise AssertionError("nobody asks it here")

    attributor = Attributor(AttributorSettings(), judge=Judge(), clock=wall, ticks=ticks)
    breaker: Breaker = attributor._breaker
    for _ in range(5):
        breaker.missed()
    wall.now -= HOUR
    assert not breaker.allows()
    ticks.now += 60.0
    assert breaker.allows()


@pytest.mark.anyio
async def test_the_audit_trail_keeps_its_order_and_stays_sound_when_the_clock_goes_back(tmp_path: Path) -> None:
    wall = Clock(time.time())
    url = f"sqlite:///{tmp_path}/evolved.db"
    store = Store(url, clock=wall)
    await store.open()
    for number, jump in enumerate((0.0, HOUR, -2 * HOUR)):
        wall.now += jump
        await store.save([Directive(id=f"d{number}", kind="freeze", reason="", origin="test", created=wall.now)])
    await store.aclose()
    assert ask(url, lambda connection: [entry.subject for entry in entries(connection)]) == ["d0", "d1", "d2"]
    assert ask(url, verify).problem == ""
