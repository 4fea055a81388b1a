"""What an engine served when, from looks and swaps alone."""

import pytest

from actors.versions.version_timeline import VersionTimeline
from tests.support.fakes import Clock


@pytest.fixture
def times() -> VersionTimeline:
    """Version 1 from 100 to a swap at 120, version 2 from 123 on; the last look was at 130."""
    clock = Clock(100.0)
    times = VersionTimeline(clock)
    times.seen("serving", 1, 99.0)
    clock.now = 120.0
    times.seen("serving", 1, 119.0)
    times.swapping("serving")
    clock.now = 123.0
    times.seen("serving", 2, 122.5)
    times.seen("serving", 2, 130.0)
    return times


@pytest.mark.parametrize(
    ("started", "ended", "version"),
    [
        (101.0, 110.0, 1),
        (101.0, 120.0, 1),
        (110.0, 121.0, -1),  # spans the swap
        (121.0, 122.0, -1),  # held back by it, or just after: which weights is not known
        (121.0, 140.0, -1),
        (124.0, 125.0, 2),
        (124.0, 200.0, 2),  # no news since the last look
        (90.0, 105.0, -1),  # began before anybody looked
    ],
)
def test_a_call_has_a_version_if_it_lies_wholly_in_one_span(times, started, ended, version) -> None:
    assert times.version("serving", started, ended) == version


def test_of_an_engine_that_nobody_looks_at_nothing_is_known(times) -> None:
    assert times.version("other", 101.0, 102.0) == -1
    assert times.hold("other")() == -1
    times.lost("serving")
    assert times.version("serving", 124.0, 129.0) == 2
    assert times.version("serving", 124.0, 131.0) == -1, "the silence began after the last look"
