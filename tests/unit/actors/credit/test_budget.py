"""What judgements may cost in a day."""

from actors.credit.budget import Budget
from tests.support.fakes import Clock


def spend(budget: Budget, tokens: float, money: float = 0.0) -> None:
    budget.begin()
    budget.end(tokens, money)


def test_a_limit_holds_until_the_day_is_over_whatever_happens_to_the_process():
    clock = Clock(1_000_000 * 86_400.0)
    budget = Budget(100, clock)
    for told in ("", "tokens per day"):
        spend(budget, 60, money=1.0)
        assert budget.used_up() == told
    clock.now += 86_399
    kept, budget = budget.dump(), Budget(100, clock)
    budget.load(kept)
    assert budget.used_up()
    clock.now += 1
    assert budget.used_up() == ""
    assert budget.spent().money_day == 0.0


def test_what_is_under_way_counts_as_what_judgements_cost_on_average():
    budget = Budget(100, Clock())
    spend(budget, 30)
    budget.begin()
    budget.begin()
    assert budget.used_up() == ""
    budget.begin()
    assert budget.used_up() == "tokens per day"
