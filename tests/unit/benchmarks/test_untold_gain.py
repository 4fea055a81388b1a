"""What is reported decides what trains, and nothing trains twice."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.benchmarks.untold_gain import ARMS, BATCH, Live

pytestmark = pytest.mark.torch


def live(arm: str, tmp_path: Path) -> Live:
    found = Live(ARMS[arm], 0, 3e-4, tmp_path)
    for _ in range(3):
        found.traffic(BATCH)
        found.update()
    return found


def test_where_everything_is_reported_each_run_trains_once_a_minute_later(tmp_path: Path) -> None:
    found = live("100", tmp_path)
    assert found.counts["reports"] >= 2 * BATCH
    assert (found.policy.version, found.counts["reported"], found.counts["guessed"]) == (2, 2 * BATCH, 0)


def test_where_nothing_is_reported_nothing_trains(tmp_path: Path) -> None:
    found = live("0", tmp_path)
    assert (found.policy.version, sum(found.counts.values())) == (0, 0)
    assert found.known.counts["runs"] >= 3 * BATCH
