"""The clock is set: a judge that was away is asked again in time, and the audit trail keeps its order."""

import time

import pytest

from actors.credit.attributor import Attributor, AttributorSettings
from actors.messages import Attribution, Directive, Trajectory
from actors.store import Store
from actors.store.archive import ask
from actors.store.audit import entries, verify
from tests.support.fakes import Clock

HOUR = 3600.0


class Judge:
    name, rubric = "judge", "1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        raise AssertionError("nobody asks it here")


def test_a_judge_that_was_away_is_asked_again_in_time_whatever_the_clock_says() -> None:
    wall, ticks = Clock(1_000_000.0), Clock(50.0)
    breaker = Attributor(AttributorSettings(), judge=Judge(), clock=wall, ticks=ticks)._breaker
    for _ in range(5):
        breaker.missed()
    wall.now -= HOUR
    assert not breaker.allows()
    ticks.now += 60.0
    assert breaker.allows()


@pytest.mark.anyio
async def test_the_audit_trail_keeps_its_order_and_stays_sound_when_the_clock_goes_back(store_url: str) -> None:
    wall = Clock(time.time())
    store = Store(store_url, clock=wall)
    await store.open()
    for number, jump in enumerate((0.0, HOUR, -2 * HOUR)):
        wall.now += jump
        await store.save([Directive(id=f"d{number}", kind="freeze", reason="", origin="test", created=wall.now)])
    await store.aclose()
    assert ask(store_url, lambda connection: [entry.subject for entry in entries(connection)]) == ["d0", "d1", "d2"]
    assert ask(store_url, verify).problem == ""
