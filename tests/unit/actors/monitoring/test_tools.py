"""When a change of tools is believed, and when the monitor keeps quiet."""

from collections.abc import Iterable

import msgspec
import pytest

from actors.messages import derived_id
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import Finding
from actors.monitoring.settings import ToolSettings
from actors.monitoring.tools import ToolDrift
from actors.tool_results.runs import RunSummary

SETTINGS = ToolSettings(min_runs=20, recent=20, cooldown_seconds=100.0)
DESK = ("book", "find", "weather")
DRIFTED = ("buy", "find", "weather")


def run(number: int, *, success: bool | None = True, version: int = 1, names=DESK, errors=0, steps=5) -> RunSummary:
    return RunSummary(
        id=f"r{number}",
        tenant="default",
        started=float(number),
        ended=number + 0.5,
        low=version,
        high=version,
        tools=derived_id("tools", *names),
        steps=steps,
        errors=errors,
        outcome=None if success is None else float(success),
    )


class Desk:
    def __init__(self, settings: ToolSettings = SETTINGS) -> None:
        self.history, self.monitor = History(200, 100, 3), ToolDrift(settings)

    def fill(self, runs: Iterable[RunSummary], names=DESK) -> None:
        for one in runs:
            self.history.add(one)
            self.monitor.sighted(one, names)

    def look(self, now: float) -> list[Finding]:
        return self.monitor.look(self.history, now)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_new_tool_list_is_told_once_with_what_changed(desk):
    desk.fill(run(n) for n in range(5))
    assert desk.look(5.0) == []
    desk.fill([run(5, names=DRIFTED)], DRIFTED)
    assert desk.look(6.0) == [], "one sighting may be a slip"
    desk.fill([run(6, names=DRIFTED)], DRIFTED)
    (drift,) = desk.look(7.0)
    assert (drift.action, drift.cause) == ("drift", "tools")
    assert (drift.details["missing"], drift.details["new"]) == ("book", "buy")
    desk.fill((run(n, names=DRIFTED) for n in range(7, 20)), DRIFTED)
    desk.fill(run(n) for n in range(20, 30))
    assert desk.look(30.0) == []


def test_a_list_that_was_forgotten_is_news_again():
    desk = Desk(msgspec.structs.replace(SETTINGS, forget_seconds=10.0))
    desk.fill([run(0), run(1)])
    desk.fill([run(n, names=DRIFTED) for n in range(2, 5)], DRIFTED)
    assert len(desk.look(5.0)) == 1
    desk.fill([run(50), run(51)])
    (drift,) = desk.look(52.0)
    assert drift.details["new"] == "book"


def test_the_first_list_of_a_tenant_is_no_drift(desk):
    desk.fill(run(n) for n in range(5))
    others = [run(n, names=DRIFTED) for n in range(5, 9)]
    for other in others:
        other.tenant = "other"
    desk.fill(others, DRIFTED)
    assert desk.look(9.0) == []


def test_a_jump_of_errors_is_drift_and_cools_down(desk):
    desk.fill(run(n) for n in range(60))
    desk.fill(run(n, errors=3) for n in range(60, 80))
    (drift,) = desk.look(80.0)
    assert drift.cause == "errors"
    desk.fill(run(n, errors=4) for n in range(80, 90))
    assert desk.look(90.0) == []


def test_a_collapse_without_a_swap_is_drift(desk):
    desk.fill(run(n, success=True) for n in range(60))
    desk.fill(run(n, success=False) for n in range(60, 80))
    (drift,) = desk.look(80.0)
    assert drift.cause == "outcomes"


def test_a_collapse_with_a_swap_is_left_to_the_version_monitors(desk):
    desk.fill(run(n, success=True) for n in range(60))
    desk.history.swapped(Swap("serving", 2, 1, 60.0))
    desk.fill(run(n, success=False, version=2) for n in range(60, 80))
    assert desk.look(80.0) == []


def test_what_was_told_is_not_told_again_after_a_restart(desk):
    desk.fill(run(n) for n in range(5))
    desk.fill([run(n, names=DRIFTED) for n in range(5, 8)], DRIFTED)
    assert len(desk.look(8.0)) == 1
    again = Desk()
    again.monitor.restore(desk.monitor.save())
    again.fill([run(n, names=DRIFTED) for n in range(8, 12)], DRIFTED)
    assert again.look(12.0) == []


def test_runs_of_another_version_before_its_swap_is_heard_of_are_no_collapse(desk):
    desk.fill(run(n, success=True) for n in range(60))
    desk.fill(run(n, success=False, version=2) for n in range(60, 79))
    desk.fill([run(79, success=True)])
    assert desk.look(80.0) == []


def test_a_collapse_counts_runs_with_an_outcome(desk):
    # One run in ten is reported: the window of 200 runs holds 20 outcomes.
    desk.fill(run(n, success=True if n % 10 == 0 else None) for n in range(400))
    desk.fill(run(n, success=False if n % 10 == 0 else None) for n in range(400, 600))
    (drift,) = desk.look(600.0)
    assert drift.cause == "outcomes"
    assert "in the last 20 runs with an outcome" in drift.reason


def test_a_collapse_is_not_told_twice_of_the_same_runs(desk):
    desk.fill(run(n, success=True) for n in range(60))
    desk.fill(run(n, success=False) for n in range(60, 80))
    assert len(desk.look(80.0)) == 1
    desk.fill(run(n, success=None) for n in range(80, 1000))
    assert desk.look(1000.0) == []


def test_a_swap_explains_a_collapse_of_runs_that_name_no_version(desk):
    desk.fill(run(n, success=True, version=-1) for n in range(60))
    desk.history.swapped(Swap("serving", 2, 1, 60.0))
    desk.fill(run(n, success=False, version=-1) for n in range(60, 90))
    assert desk.look(90.0) == []
