"""What is worth a judge's time: failures, and a share of the rest; and what is the same to a judge."""

import msgspec
import pytest

from actors.credit.attributor import worth
from actors.credit.judgement_cache import content_hash
from actors.messages import Trajectory
from tests.support.travelling import call, plays, trajectory


def run(number: int, outcome: float | None = 1.0) -> Trajectory:
    return trajectory([(call("find"), "")], id=f"r{number}", outcome=outcome)


def test_failures_are_judged_and_of_the_rest_a_share_the_same_ones_each_time():
    assert [worth(each, 0.0) for each in (run(1, 0.0), run(1), run(1, None))] == [True, False, False]
    chosen, again = ([worth(run(n), 0.3) for n in range(2000)] for _ in range(2))
    assert chosen == again
    assert 0.25 < sum(chosen) / 2000 < 0.35


def test_content_is_what_a_judge_may_look_at_and_no_id_or_time():
    first = next(iter(plays(1))).trajectory
    step = msgspec.structs.replace(first.steps[0], exchange_id="other", response_id="other")
    again = msgspec.structs.replace(first, id="other", started=7.0, ended=9.0, steps=(step, *first.steps[1:]))
    assert content_hash("j", "1", first) == content_hash("j", "1", again)


@pytest.mark.parametrize(
    "change",
    [
        {"goal": "another"}, {"outcome": None}, {"tools": b"[]"}, {"tenant": "b"}, {"closed_by": "limit"},
        {"steps": ()},
    ],
)  # fmt: skip
def test_whatever_else_differs_makes_other_content(change):
    first = next(iter(plays(1))).trajectory
    assert content_hash("j", "1", first) != content_hash("j", "1", msgspec.structs.replace(first, **change))
    assert content_hash("j", "1", first) != content_hash("j", "2", first) != content_hash("k", "2", first)
