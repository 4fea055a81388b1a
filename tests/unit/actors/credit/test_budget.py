"""What judgements may cost: in any day, whatever happens to the process."""

from actors.credit.breaker import Breaker
from actors.credit.budget import Budget
from tests.support.fakes import Clock


def spend(budget: Budget, tokens: float, money: float = 0.0) -> None:
    budget.begin()
    budget.end(tokens, money)


def test_a_limit_holds_until_what_was_spent_has_left_the_day():
    clock = Clock(1_000_000.0)
    budget = Budget(100, clock)
    for told in ("", "tokens per day"):
        spend(budget, 60, money=1.0)
        assert budget.used_up() == told
    clock.now += 86_400 - 1
    assert budget.used_up()
    clock.now += 301
    assert budget.used_up() == ""


def test_what_is_under_way_counts_as_what_judgements_cost_on_average():
    budget = Budget(100, Clock())
    spend(budget, 30)
    budget.begin()
    budget.begin()
    assert budget.used_up() == ""
    budget.begin()
    assert budget.used_up() == "tokens per day"


def test_a_breaker_opens_probes_alone_waits_longer_each_time_and_closes():
    clock = Clock(0.0)
    breaker = Breaker(clock, failures=3, first_wait=10.0, max_wait=30.0)
    for _ in range(2):
        assert breaker.allows()
        breaker.missed()
    breaker.answered()
    for _ in range(3):
        assert breaker.allows()
        breaker.missed()
    assert (breaker.open, breaker.opened, breaker.remaining()) == (True, 1, 10.0)
    for wait in (10.0, 20.0, 30.0, 30.0):
        assert not breaker.allows()
        clock.now += wait
        assert breaker.allows()
        assert not breaker.allows()  # one probe at a time
        breaker.missed()
    clock.now += 30.0
    assert breaker.allows()
    breaker.answered()
    assert not breaker.open
    assert all(breaker.allows() for _ in range(5))
    for _ in range(5):
        breaker.missed()
    assert breaker.remaining() == 10.0, "failures of questions from before it opened do not prolong the wait"
    clock.now += 10.0
    assert breaker.allows()
    breaker.dropped()
    assert breaker.allows(), "a probe that was cancelled lets the next one through"
