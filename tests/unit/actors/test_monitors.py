"""When the monitors speak and when they keep quiet."""

import json
from collections.abc import Iterable

import msgspec
import pytest

from actors.messages import Step, Trajectory, derived_id
from actors.monitors import MonitorSettings, Run, State, Swap, Watch, is_error, summarize, tool_names

SETTINGS = MonitorSettings(min_runs=20, recent=20, window=200, cooldown_seconds=100.0)
DESK = ("book", "find", "weather")
DRIFTED = ("buy", "find", "weather")


def run(number: int, *, success: bool | None = True, version: int = 1, names=DESK, errors=0, steps=5) -> Run:
    return Run(
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


def fill(watch: Watch, runs: Iterable[Run], names=DESK) -> None:
    for one in runs:
        watch.add(one, names)


@pytest.fixture
def watch() -> Watch:
    return Watch(SETTINGS)


def test_a_fall_after_a_swap_is_a_regression_once(watch):
    fill(watch, (run(n, success=n % 10 != 0) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    fill(watch, (run(n, success=n % 2 == 0, version=2) for n in range(40, 80)))
    found = watch.regression()
    assert found is not None
    assert found.swap.version == 2
    assert found.before == (36, 40)
    assert found.after == (20, 40)
    assert watch.regression() is None


def test_a_steady_success_is_none(watch):
    fill(watch, (run(n, success=n % 2 == 0) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    fill(watch, (run(n, success=n % 2 == 0, version=2) for n in range(40, 80)))
    assert watch.regression() is None


def test_a_fall_with_other_tools_is_no_regression(watch):
    fill(watch, (run(n) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    fill(watch, (run(n, success=False, version=2, names=DRIFTED) for n in range(40, 80)), DRIFTED)
    assert watch.regression() is None


def test_few_runs_are_not_judged(watch):
    fill(watch, (run(n) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    fill(watch, (run(n, success=False, version=2) for n in range(40, 50)))
    assert watch.regression() is None


def test_runs_without_versions_are_sorted_by_time(watch):
    fill(watch, (run(n, version=-1) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    fill(watch, (run(n, success=False, version=-1) for n in range(40, 70)))
    found = watch.regression()
    assert found is not None
    assert found.after == (0, 30)


def test_late_outcomes_count(watch):
    fill(watch, (run(n) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    fill(watch, (run(n, success=None, version=2) for n in range(40, 70)))
    assert watch.regression() is None
    assert all(watch.outcome(f"r{n}", 0.0) for n in range(40, 70))
    assert watch.regression() is not None
    assert not watch.outcome("never seen", 0.0)


def test_a_new_tool_list_is_told_once_with_what_changed(watch):
    fill(watch, (run(n) for n in range(5)))
    assert watch.drifts(5.0) == []
    fill(watch, [run(5, names=DRIFTED)], DRIFTED)
    assert watch.drifts(6.0) == [], "one sighting may be a slip"
    fill(watch, [run(6, names=DRIFTED)], DRIFTED)
    (drift,) = watch.drifts(7.0)
    assert (drift.cause, drift.missing, drift.new) == ("tools", ("book",), ("buy",))
    fill(watch, (run(n, names=DRIFTED) for n in range(7, 20)), DRIFTED)
    fill(watch, (run(n) for n in range(20, 30)))
    assert watch.drifts(30.0) == []


def test_a_list_that_was_forgotten_is_news_again():
    watch = Watch(msgspec.structs.replace(SETTINGS, forget_seconds=10.0))
    fill(watch, [run(0), run(1)])
    fill(watch, [run(n, names=DRIFTED) for n in range(2, 5)], DRIFTED)
    assert len(watch.drifts(5.0)) == 1
    fill(watch, [run(50), run(51)])
    (drift,) = watch.drifts(52.0)
    assert drift.new == ("book",)


def test_the_first_list_of_a_tenant_is_no_drift(watch):
    fill(watch, [run(n) for n in range(5)])
    fill(watch, [msgspec.structs.replace(run(n, names=DRIFTED), tenant="other") for n in range(5, 9)], DRIFTED)
    assert watch.drifts(9.0) == []


def test_a_jump_of_errors_is_drift_and_cools_down(watch):
    fill(watch, (run(n) for n in range(60)))
    fill(watch, (run(n, errors=3) for n in range(60, 80)))
    (drift,) = watch.drifts(80.0)
    assert drift.cause == "errors"
    fill(watch, (run(n, errors=4) for n in range(80, 90)))
    assert watch.drifts(90.0) == []


def test_a_collapse_without_a_swap_is_drift(watch):
    fill(watch, (run(n, success=True) for n in range(60)))
    fill(watch, (run(n, success=False) for n in range(60, 80)))
    (drift,) = watch.drifts(80.0)
    assert drift.cause == "outcomes"


def test_a_collapse_with_a_swap_is_left_to_the_regression_monitor(watch):
    fill(watch, (run(n, success=True) for n in range(60)))
    watch.swapped(Swap("serving", 2, 1, 60.0))
    fill(watch, (run(n, success=False, version=2) for n in range(60, 80)))
    assert watch.drifts(80.0) == []


def test_the_state_survives_the_disk(watch):
    fill(watch, (run(n) for n in range(40)))
    watch.swapped(Swap("serving", 2, 1, 40.0))
    data = msgspec.msgpack.encode(watch.snapshot())
    again = Watch(SETTINGS, msgspec.msgpack.decode(data, type=State))
    fill(again, (run(n, success=False, version=2) for n in range(30, 80)))
    found = again.regression()
    assert found is not None
    assert found.after == (0, 40), "runs seen before the restart are not counted again"


def test_the_window_is_bounded(watch):
    fill(watch, (run(n) for n in range(1000)))
    assert len(watch.snapshot().runs) == SETTINGS.window


def test_a_trajectory_in_brief():
    tools = [{"type": "function", "function": {"name": name}} for name in reversed(DESK)]
    trajectory = Trajectory(
        id="t",
        steps=(
            Step(exchange_id="a", observation='{"error": "no tool"}'),
            Step(exchange_id="b", observation='{"pid": "K1"}'),
            Step(exchange_id="c"),
        ),
        tools=json.dumps(tools).encode(),
        started=1.0,
        ended=2.0,
        min_version=3,
        max_version=4,
    )
    brief, names = summarize(trajectory)
    assert names == DESK
    assert (brief.steps, brief.errors, brief.low, brief.high) == (3, 1, 3, 4)


@pytest.mark.parametrize(
    "tools", [b"", b"{", b"[1, {}]", b'"text"', b'[{"function": 3}]', b'[{"function": {"name": 1}}]']
)
def test_odd_tool_lists_have_no_names(tools):
    assert tool_names(tools) == ()


@pytest.mark.parametrize("text", ["", "an error", '{"error"', '["error"]', '{"ok": "error"}'])
def test_what_is_no_error_object(text):
    assert not is_error(text)
