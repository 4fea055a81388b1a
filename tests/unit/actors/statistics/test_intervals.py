"""Intervals against published figures, and what must hold for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.statistics.intervals import Interval, Pairs, both, decide, newcombe, newcombe_paired, wilson


@st.composite
def samples(draw: st.DrawFn) -> tuple[int, int]:
    trials = draw(st.integers(1, 400))
    return draw(st.integers(0, trials)), trials


tables = st.builds(Pairs, *[st.integers(0, 120)] * 4).filter(lambda pairs: pairs.total > 0)


TABLES = [
    (wilson(81, 263), (0.2553, 0.3662)),
    (wilson(0, 20), (0.0, 0.1611)),
    (newcombe((56, 70), (48, 80)), (0.0524, 0.3339)),
    (newcombe((9, 10), (3, 10)), (0.1705, 0.8090)),
    (newcombe_paired(Pairs(36, 12, 2, 0)), (0.0569, 0.3404)),
]


@pytest.mark.parametrize(("found", "table"), TABLES)
def test_limits_match_newcombes_tables(found: Interval | tuple[float, float], table: tuple[float, float]):
    low, high = (found.low, found.high) if isinstance(found, Interval) else found
    assert (round(low, 4), round(high, 4)) == table


@given(samples(), samples())
def test_difference_holds_the_estimate_and_turns_with_its_arguments(first, second):
    forth, back = newcombe(first, second), newcombe(second, first)
    assert -1 <= forth.low <= forth.estimate <= forth.high <= 1
    assert forth.low == pytest.approx(-back.high)


@given(tables)
def test_paired_interval_holds_the_estimate(pairs):
    interval = newcombe_paired(pairs)
    assert interval.low <= interval.estimate + 1e-12
    assert interval.high >= interval.estimate - 1e-12
    assert -1 <= interval.low <= interval.high <= 1


@given(samples(), samples(), st.floats(0, 0.5))
def test_a_worse_candidate_is_never_judged_better(first, second, margin):
    rank = {"reject": 0, "hold": 1, "promote": 2}
    worse = (first[0] - 1, first[1]) if first[0] else first
    assert rank[decide(newcombe(worse, second), margin)] <= rank[decide(newcombe(first, second), margin)]


def test_decisions():
    assert decide(Interval(0.0, -0.05, 0.05), 0.1) == "promote"
    assert decide(Interval(0.0, -0.15, 0.15), 0.1) == "hold"
    assert decide(Interval(-0.3, -0.5, -0.1), 0.1) == "reject"
    assert both("promote", "hold") == "hold"
    assert both("hold", "reject") == "reject"
    assert both("promote", "promote") == "promote"


def test_pairs_count_and_refuse_uneven_lengths():
    pairs = Pairs.count([True, True, False, False], [True, False, True, False])
    assert (pairs.both, pairs.only_first, pairs.only_second, pairs.neither) == (1, 1, 1, 1)
    with pytest.raises(ValueError, match="shorter"):
        Pairs.count([True], [])
