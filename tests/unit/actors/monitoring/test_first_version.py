"""The version that serves against the first: found over many small falls, and not on one party's word."""

import random
from collections.abc import Sequence

import msgspec

from actors.monitoring.first_version import FirstVersion
from actors.monitoring.history import History, Swap
from actors.monitoring.settings import MonitorSettings
from tests.support.behaviour import Behaviour, runs

LONG = 300
"""Runs of a version."""
SETTINGS = MonitorSettings()


class Served:
    """Versions that serve one after the other, as the sentinel hears of them."""

    def __init__(self, seed: int) -> None:
        versions = SETTINGS.versions
        self.history = History(SETTINGS.window, versions.sample, versions.versions)
        self.monitor, self.rng, self.at, self.version = FirstVersion(versions), random.Random(seed), 0, -1

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
    assert 0 not in served.history.snapshot().samples
    assert served.below == 1.0
    readings = served.monitor.readings()
    assert readings["after"] < readings["before"]


def test_versions_that_are_as_good_or_better_are_not_below() -> None:
    for seed in range(3):
        served = Served(seed)
        read = [one for version in range(8) for one in served.serve(version, 0.6)]
        read += served.serve(8, 0.8)
        assert set(read) == {0.0}


def test_going_back_to_the_first_ends_it() -> None:
    served = Served(2).chain([0.9, 0.4])
    assert served.below == 1.0
    served.swap(0)
    assert served.monitor.readings() == {"below": 0.0}


def test_one_party_alone_does_not_make_it_below_but_most_of_them_do() -> None:
    for liars, below in ((1, 0.0), (4, 1.0)):
        served = Served(3)
        served.serve(0, 0.9)
        served.serve(1, 0.9, liars=liars)
        assert served.below == below


def test_what_is_kept_is_bounded_survives_a_restart_and_gives_three_versions() -> None:
    served = Served(4).chain([0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5])
    data = served.monitor.save()
    again = FirstVersion(SETTINGS.versions)
    again.restore(data)
    assert again.save() == data
    assert again.readings() == served.monitor.readings()
    versions = again.versions(served.history)
    assert {place: one.version for place, one in versions.items()} == {"serving": 8, "previous": 7, "first": 0}
    assert all(one.outcomes <= SETTINGS.versions.sample for one in versions.values())
    assert 0.8 < versions["first"].solved / versions["first"].outcomes < 1.0


def test_runs_that_nobody_reported_are_no_outcomes() -> None:
    served = Served(5)
    served.serve(0, 0.9, outcomes=0.0)
    assert served.monitor.versions(served.history) == {}


def test_the_store_says_which_version_was_first_where_the_state_was_lost() -> None:
    served = Served(6)
    served.monitor.begin(0)
    served.serve(5, 0.9)
    served.serve(6, 0.4)
    assert served.monitor.readings() == {"below": 0.0}
    assert set(served.monitor.versions(served.history)) == {"serving", "previous"}
