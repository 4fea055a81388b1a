"""The clock is set: a judge that was away is asked again in time."""

from actors.credit.attributor import Attributor, AttributorSettings
from actors.messages import Attribution, Trajectory
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
