"""Drift of the judge, block by block; and the version that serves against the first."""

import random
from collections.abc import Sequence

import msgspec
import pytest

from actors.monitoring.first_version import FirstVersion
from actors.monitoring.history import History, Swap
from actors.monitoring.judge_drift import JudgeDrift
from actors.monitoring.monitor import Finding
from actors.monitoring.settings import SAMPLE, VERSIONS, WINDOW
from tests.support.behaviour import Behaviour, runs

USUAL = Behaviour()
LENIENT = {"good": (0.85, 0.98)}
SURE = {"abstain": 0.0}
LONG = 300
"""Runs of a version."""


def feed(
    monitor: JudgeDrift, *chain: tuple[dict, int], seed: int = 0, swap: int | None = 1
) -> list[tuple[int, Finding]]:
    """(runs so far, finding) over runs of one version, whose behaviour changes."""
    rng, history, first, found = random.Random(seed), History(512, 64, 2), 0, list[tuple[int, Finding]]()
    if swap is not None:
        history.swapped(Swap("serving", swap, swap - 1, 0.0))
    for changed, count in chain:
        for run in runs(rng, 1, msgspec.structs.replace(USUAL, **changed), first, count):
            history.fresh.judged.append(run)
            first += 1
            found += [(first, finding) for finding in monitor.look(history, run.ended)]
            history.looked()
    return found


@pytest.mark.parametrize(
    ("before", "change", "at"),
    [(128, SURE, None), (128, SURE | LENIENT, 192), (256, SURE | {"success": 0.3}, None)],
    ids=["as before", "lenient", "a harder world is no drift of the judge"],
)
def test_a_drift_is_told_once_as_the_new_normal(before, change, at) -> None:
    found = feed(JudgeDrift("freeze"), (SURE, before), (change, 640))
    assert [(runs, one.action, one.cause) for runs, one in found] == ([(at, "freeze", "judge-score")] if at else [])


def test_another_version_begins_a_new_reference() -> None:
    monitor = JudgeDrift("freeze")
    assert feed(monitor, (SURE, 128), swap=None) == []
    assert feed(monitor, (SURE | LENIENT, 256)) == []


class Served:
    """Versions that serve one after the other, as the sentinel hears of them."""

    def __init__(self, seed: int) -> None:
        self.history = History(WINDOW, SAMPLE, VERSIONS)
        self.monitor, self.rng, self.at, self.version = FirstVersion(), random.Random(seed), 0, -1

    def swap(self, version: int) -> None:
        self.history.swapped(Swap("serving", version, self.version, float(self.at)))
        self.version = version
        assert self.monitor.look(self.history, self.at) == []

    def serve(self, version: int, success: float, *, liars: int = 0, outcomes: float = 1.0) -> list[float]:
        """`version` serves `LONG` runs of six parties, of which the first `liars` report failures alone; what was read
        of it meanwhile."""
        self.swap(version)
        read: list[float] = []
        for run in runs(self.rng, version, Behaviour(success=success, outcomes=outcomes), self.at, LONG):
            party = self.rng.randrange(6)
            outcome = 0.0 if party < liars else run.outcome
            self.history.add(msgspec.structs.replace(run, party=str(party), outcome=outcome))
            self.at += 1
            if self.at % 10 == 0:
                assert self.monitor.look(self.history, self.at) == []
                read.append(self.below)
        return read

    def chain(self, shares: Sequence[float]) -> "Served":
        for version, share in enumerate(shares):
            self.serve(version, share)
        return self

    @property
    def below(self) -> float:
        return self.monitor.readings()["below"]


def test_small_falls_add_up_though_the_first_version_is_long_out_of_the_history() -> None:
    served = Served(1).chain([0.9 - 0.04 * version for version in range(11)])
    readings = served.monitor.readings()
    assert (served.history.outcomes_of(0), served.below) == ([], 1.0)
    assert readings["after"] < readings["before"]
    again = FirstVersion()
    again.restore(served.monitor.save())
    assert (again.save(), again.readings()) == (served.monitor.save(), readings)
    versions = again.versions(served.history)
    assert {place: one.version for place, one in versions.items()} == {"serving": 10, "previous": 9, "first": 0}
    assert all(one.outcomes <= SAMPLE for one in versions.values())
    assert 0.8 < versions["first"].solved / versions["first"].outcomes < 1.0


@pytest.mark.parametrize(
    ("shares", "liars", "below"),
    [([0.6] * 6 + [0.8], 0, {0.0}), ([0.9, 0.4], 0, {0.0, 1.0}), ([0.9, 0.9], 1, {0.0}), ([0.9, 0.9], 4, {0.0, 1.0})],
    ids=["as good or better", "worse", "one party says so", "most of them say so"],
)
def test_a_version_is_below_the_first_while_it_serves_and_not_on_one_partys_word(shares, liars, below) -> None:
    served, read = Served(3), list[float]()
    for version, success in enumerate(shares):
        read += served.serve(version, success, liars=liars if version else 0)
    assert set(read) == below
    served.swap(0)
    assert served.monitor.readings() == {"below": 0.0}, "going back to the first ends it"


def test_runs_that_nobody_reported_are_no_outcomes_and_the_store_says_which_version_was_first() -> None:
    served = Served(5)
    served.monitor.begin(0)
    served.serve(5, 0.9, outcomes=0.0)
    assert served.monitor.versions(served.history) == {}
    served.serve(6, 0.9)
    served.serve(7, 0.4)
    assert (served.monitor.readings(), set(served.monitor.versions(served.history))) == (
        {"below": 0.0}, {"serving", "previous"},
    )  # fmt: skip
