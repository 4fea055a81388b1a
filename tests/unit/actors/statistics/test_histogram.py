"""Counts by size, as Prometheus wants them."""

from actors.statistics.histogram import Histogram


def test_a_value_is_counted_in_each_bucket_that_it_fits_and_a_bound_is_inclusive() -> None:
    seen = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 7.0):
        seen.note(value)
    assert seen.cumulative() == [("1.0", 2.0), ("5.0", 3.0), ("+Inf", 4.0)]
    assert seen.sum == 11.5
