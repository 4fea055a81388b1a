"""What judgements may cost in a day."""

from actors.credit.budget import Budget
from tests.support.fakes import Clock


def test_a_limit_holds_until_the_day_is_over_whatever_happens_to_the_process():
    clock = Clock(1_000_000 * 86_400.0)
    budget = Budget(100, clock)
    for told in ("", "tokens per day"):
        budget.add(60, 1.0)
        assert budget.used_up() == told
    clock.now += 86_399
    kept, budget = budget.dump(), Budget(100, clock)
    budget.load(kept)
    assert budget.used_up()
    clock.now += 1
    assert budget.used_up() == ""
    assert budget.spent().money_day == 0.0
