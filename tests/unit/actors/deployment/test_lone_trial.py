"""One engine: what the gate promotes serves everybody at once, and is on trial against what served before."""

import json

import msgspec
import pytest

from actors.messages import Directive, Serving, Step, Trajectory, Verdict
from actors.messages.signing import record_problem
from actors.ports.store import FailedCall, SwapReport
from actors.versions.desired_state import Plan, plan
from tests.support.fakes import FakeEngine, FakeRunner
from tests.unit.actors.deployment.test_swapper import Bench, versions

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(tmp_path) -> Bench:
    """Version 0 has served 100 runs with an outcome, 80 of them solved."""
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    bench.runs(0, 100, solved=80, ago=10)
    return bench


def kinds(records) -> list[tuple[str, int]]:
    return [
        (item.kind, int(item.details["version"])) if isinstance(item, Directive) else (item.result, item.version)
        for item in records
    ]


def standing(bench: Bench) -> tuple[int | None, int | None, int | None]:
    """(stable, on trial, waiting)."""
    fleet = bench.swapper.fleet
    return fleet.stable, fleet.canary, fleet.waiting


async def test_a_promoted_version_serves_all_and_is_on_trial(bench):
    assert kinds(await bench.tell(bench.promote(3))) == [("swapped", 3)]
    assert (standing(bench), versions(bench)) == ((0, 3, None), [3])
    assert bench.swapper.fleet.engines["serving"].canary_share == 1.0
    assert (bench.path / "routes.json").exists() is False, "the tap has nothing to choose"


async def test_a_version_that_does_as_well_as_the_one_before_is_taken(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 31, solved=25)
    bench.clock.now += 60
    assert await bench.tick() == [], "too few have an outcome"
    bench.runs(3, 1, solved=1)
    (order,) = await bench.tick()
    assert (order.kind, record_problem(order, bench.keys)) == ("roll_on", "")
    assert "26/32 solved" in order.reason
    assert "before 80/100" in order.reason
    assert standing(bench) == (3, None, None)
    assert (await bench.tick(), bench.runner.calls) == ([], [("serving", 3)])


async def test_a_trial_lasts_its_time_however_many_runs_there_are(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 50, solved=40)
    bench.clock.now += 50
    assert await bench.tick() == []
    bench.clock.now += 10
    assert kinds(await bench.tick()) == [("roll_on", 3)]


async def test_a_worse_version_goes_back_to_the_stable_one_for_good(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 12, solved=2)
    order, serving = await bench.tick()
    assert (order.kind, order.details) == ("rollback", {"version": "3", "engine": "serving", "to": "0"})
    assert "10 of 12 runs with failures, 20 of 100 before" in order.reason
    assert (serving.result, serving.version, versions(bench)) == ("swapped", 0, [0])
    assert await bench.tell(msgspec.structs.replace(bench.promote(3), id="again")) == []
    await bench.restart()
    assert (await bench.tick(), standing(bench)) == ([], (0, None, None))


async def test_errors_of_tools_and_of_the_engine_speak_against_a_version_too(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 12, errors=9)
    assert kinds(await bench.tick()) == [("rollback", 3), ("swapped", 0)]
    await bench.tell(bench.promote(4))
    bench.runs(4, 8)
    bench.store.failed = [FailedCall(f"x{n}", "serving", f"run{n}", bench.clock.now) for n in range(8)]
    order, *_ = await bench.tick()
    assert (order.kind, "8 of 16 runs with errors" in order.reason) == ("rollback", True)


async def test_an_engine_that_failed_as_many_calls_before_says_nothing_of_the_version(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 16)
    bench.store.failed = [FailedCall(f"x{n}", "serving", f"run{n}", bench.clock.now) for n in range(8)]
    bench.store.failed_before = [FailedCall(f"b{n}", "serving", f"old{n}", 0.0) for n in range(50)]
    assert await bench.tick() == []


async def test_what_waits_is_tried_next_if_the_trial_ends_well(bench):
    await bench.tell(bench.promote(3))
    assert await bench.tell(bench.promote(4)) == []
    assert await bench.tell(bench.promote(5)) == []
    assert standing(bench) == (0, 3, 5)
    bench.runs(3, 32, solved=26)
    bench.clock.now += 60
    assert kinds(await bench.tick()) == [("roll_on", 3), ("swapped", 5)]
    assert (standing(bench), bench.swapper.fleet.canary_runs) == ((3, 5, None), 0)


async def test_what_waits_is_dropped_if_the_trial_ends_badly(bench):
    await bench.tell(bench.promote(3))
    await bench.tell(bench.promote(4))
    bench.runs(3, 12, solved=1)
    assert kinds(await bench.tick()) == [("rollback", 3), ("swapped", 0)]
    assert (await bench.tick(), standing(bench)) == ([], (0, None, None))
    assert await bench.tell(bench.promote(5, incumbent=3)) == [], "better than what was bad"
    assert kinds(await bench.tell(bench.promote(6))) == [("swapped", 6)]


async def test_with_little_feedback_a_trial_ends_at_its_deadline(bench):
    await bench.tell(bench.promote(3))
    bench.clock.now += 3600
    bench.runs(3, 7, solved=6)
    assert await bench.tick() == [], "seven outcomes say nothing"
    bench.runs(3, 1, solved=1)
    (order,) = await bench.tick()
    assert (order.kind, "the deadline passed" in order.reason) == ("roll_on", True)


async def test_outcomes_that_come_late_count_however_many_runs_without_one_came_since(bench):
    await bench.tell(bench.promote(3))
    early = bench.runs(3, 12)
    bench.clock.now += 5
    bench.runs(3, 1000)
    assert await bench.tick() == []
    fleet = bench.swapper.fleet
    assert (fleet.canary_judged, fleet.canary_runs) == (0, 412), "512 are read at a time, 100 of them from before"
    bench.store.save([msgspec.structs.replace(run, outcome=0.0) for run in early])
    for _ in range(2):
        bench.clock.now += 5
        found = kinds(await bench.tick())
        if found:
            break
    assert found == [("rollback", 3), ("swapped", 0)]


async def test_late_outcomes_of_what_served_before_count_too(tmp_path):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    before = bench.runs(0, 100, ago=20)
    bench.runs(0, 400, ago=10)
    await bench.tell(bench.promote(3))
    bench.runs(3, 12, solved=2)
    assert await bench.tick() == [], "nothing is known of the version before"
    bench.store.save([msgspec.structs.replace(run, outcome=1.0) for run in before])
    bench.runs(3, 6, solved=1)
    assert kinds(await bench.tick()) == [("rollback", 3), ("swapped", 0)]


async def test_runs_of_neither_version_and_of_both_count_on_no_side(bench):
    await bench.tell(bench.promote(3))
    bench.runs(9, 50, solved=0)
    mixed = bench.runs(3, 50, solved=0, goal="mixed")
    bench.store.save([msgspec.structs.replace(run, min_version=0) for run in mixed])
    bench.runs(0, 50, solved=50)
    bench.runs(3, 8, solved=7)
    await bench.tick()
    arms = bench.swapper.fleet
    assert (arms.canary_judged, arms.canary_runs, standing(bench)) == (8, 8, (0, 3, None))


async def test_harder_requests_since_the_swap_are_not_held_against_the_version(tmp_path):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    bench.runs(0, 300, solved=285, ago=20, goal="Change the date of my flight")
    bench.runs(0, 80, solved=40, errors=40, ago=10, goal="Plan a tour of five cities with my family")
    await bench.tell(bench.promote(3))
    bench.runs(3, 40, solved=20, errors=20, goal="Plan a tour of five cities with my family")
    bench.clock.now += 60
    assert kinds(await bench.tick()) == [("roll_on", 3)]


async def test_requests_that_nobody_made_before_say_nothing(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 40, solved=0, goal="Translate this treaty into Latin verse")
    bench.clock.now += 60
    assert kinds(await bench.tick()) == [("roll_on", 3)]


async def test_an_operators_order_is_on_trial_and_the_second_one_ends_the_trial(bench):
    verdict = bench.promote(7)
    order = {"version": "7", "path": verdict.path, "manifest": verdict.manifest}
    assert kinds(await bench.tell(bench.order("promote", **order))) == [("swapped", 7)]
    assert standing(bench) == (0, 7, None)
    assert await bench.tell(bench.order("promote", **order)) == []
    assert standing(bench) == (7, None, None)


async def test_what_an_operator_ordered_goes_back_by_itself_if_it_is_worse(bench):
    verdict = bench.promote(7)
    await bench.tell(bench.order("promote", version="7", path=verdict.path, manifest=verdict.manifest))
    bench.runs(7, 12, solved=1)
    assert kinds(await bench.tick()) == [("rollback", 7), ("swapped", 0)]


async def test_a_daemon_that_restarts_goes_on_with_the_trial_and_has_no_look_for_free(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 12, solved=9)
    assert await bench.tick() == []
    since, looks = bench.swapper.fleet.canary_since, json.loads(bench.store.state["swapper/canary"])
    await bench.restart()
    assert (await bench.tick(), bench.swapper.fleet.canary_since) == ([], since)
    assert json.loads(bench.store.state["swapper/canary"]) == looks
    bench.runs(3, 20, solved=16)
    bench.clock.now += 60
    assert kinds(await bench.tick()) == [("roll_on", 3)]


async def test_an_engine_that_comes_up_with_old_weights_is_brought_back_to_the_trial_twice(bench):
    await bench.tell(bench.promote(3))
    for _ in range(2):
        bench.engines["serving"].current = 0
        assert kinds(await bench.tick()) == [("swapped", 3)]
    order, serving = await bench.tick()
    assert (order.kind, "came up again without it 2 times" in order.reason) == ("rollback", True)
    assert (serving.version, standing(bench)) == (0, (0, None, None))


async def test_a_version_that_cannot_be_loaded_ends_its_own_trial(bench):
    bench.runner.reports[3] = SwapReport(result="refused", version=3, reason="NaN")
    assert kinds(await bench.tell(bench.promote(3))) == [("refused", 3)]
    assert standing(bench) == (0, 3, None)
    assert kinds(await bench.tick()) == [("refused", 3)]
    assert (await bench.tick(), standing(bench), versions(bench)) == ([], (0, None, None), [0])


async def test_while_frozen_a_trial_is_not_ended_well_and_nothing_new_comes_in(bench):
    await bench.tell(bench.promote(3))
    await bench.tell(bench.order("freeze"))
    bench.runs(3, 40, solved=32)
    bench.clock.now += 60
    assert await bench.tick() == []
    assert await bench.tell(bench.promote(4)) == []
    assert standing(bench) == (0, 3, None)
    bench.engines["serving"].current = 0
    assert kinds(await bench.tick()) == [("swapped", 3)], "an engine is still brought back to what it served"
    assert kinds(await bench.tell(bench.order("thaw"))) == [("roll_on", 3), ("swapped", 4)]


async def test_while_frozen_a_worse_version_still_goes_back(bench):
    await bench.tell(bench.promote(3))
    await bench.tell(bench.order("freeze"))
    bench.runs(3, 12, solved=0)
    assert kinds(await bench.tick()) == [("rollback", 3), ("swapped", 0)]


async def test_whoever_orders_the_trial_back_ends_it_and_a_second_order_does_not_end_the_next(bench):
    await bench.tell(bench.promote(3))
    assert kinds(await bench.tell(bench.order("rollback", version="3", to="0"))) == [("swapped", 0)]
    await bench.tell(bench.promote(4))
    assert await bench.tell(bench.order("rollback", version="3", to="0")) == []
    assert standing(bench) == (0, 4, None)


async def test_a_rollback_further_back_ends_the_trial_with_what_was_stable(bench):
    await bench.stable(3)
    await bench.tell(bench.promote(4))
    await bench.tell(bench.promote(5))
    assert kinds(await bench.tell(bench.order("rollback", version="3", to="0"))) == [("swapped", 0)]
    assert (standing(bench), await bench.tick()) == ((0, None, None), [])


async def test_what_was_promoted_before_anything_served_is_compared_with_what_the_engine_came_up_with(tmp_path):
    bench = Bench(tmp_path)
    bench.store.save([bench.promote(3)])
    bench.clock.now += 1
    await bench.swapper.start()
    assert kinds(await bench.tick()) == [("started", 0)]
    assert kinds(await bench.tick()) == [("swapped", 3)]
    assert standing(bench) == (0, 3, None)


async def test_without_anything_good_to_go_back_to_there_is_no_trial(tmp_path):
    bench = Bench(tmp_path)
    bench.engines["serving"].current = 3
    bench.store.save([bench.promote(3)])
    bench.clock.now += 1
    await bench.swapper.start()
    assert kinds(await bench.tick()) == [("started", 3)]
    assert standing(bench) == (3, None, None)
    await bench.tell(bench.order("rollback", version="3"))
    assert standing(bench) == (None, None, None), "a person must look"
    verdict = bench.promote(4)
    order = bench.order("promote", version="4", path=verdict.path, manifest=verdict.manifest)
    assert (kinds(await bench.tell(order)), standing(bench)) == ([("swapped", 4)], (4, None, None))


def test_books_from_before_there_were_trials_make_the_newest_version_the_one_on_trial():
    def verdict(version: int, at: float) -> Verdict:
        return Verdict(
            id=str(at), version=version, path=f"/v{version}", manifest="m", incumbent=0, decision="promote",
            reason="", created=at,
        )  # fmt: skip

    def serving(version: int, at: float) -> Serving:
        path = f"/v{version}"
        return Serving(id=str(at), engine="e", version=version, previous=0, path=path, result="swapped", since=at)

    def now(*more: Directive, engines: tuple[str, ...] = ("e",)) -> Plan:
        verdicts, servings = [verdict(n, 10.0 * n) for n in (1, 2, 3)], [serving(n, 10.0 * n + 1) for n in range(4)]
        return plan(engines, verdicts, more, servings, frozen=False, attempts=2)

    found = now()
    assert found.stable is not None
    assert found.trial is not None
    assert (found.stable.version, found.trial.goal.version, found.trial.since) == (2, 3, 31.0)
    assert (found.waiting, found.good) == (None, (0, 1, 2))
    back = Directive(id="d", kind="rollback", reason="", origin="", created=40.0, details={"version": "3", "to": "2"})
    found = now(back)
    assert found.stable is not None
    assert (found.stable.version, found.trial) == (2, None)


@pytest.mark.parametrize(("who", "serves"), [("sentinel", 0), ("operator", 1)])
def test_the_sentinel_does_not_move_what_a_trial_went_back_to_and_a_person_does(who: str, serves: int) -> None:
    def rollback(name: str, origin: str, at: float, to: str) -> Directive:
        details = {"version": "2", "to": to}
        return Directive(id=name, kind="rollback", reason="", origin=origin, created=at, details=details)

    verdicts = [
        Verdict(
            id=f"v{n}", version=n, path=f"/v{n}", manifest="m", incumbent=n - 1, decision="promote", reason="",
            created=10.0 * n,
        )
        for n in (1, 2)
    ]  # fmt: skip
    servings = [
        Serving(id=f"s{n}", engine="e", version=n, previous=n - 1, path=f"/v{n}", result="swapped", since=10.0 * n + 1)
        for n in (0, 1, 2)
    ]
    orders = [rollback("trial", "swapper", 40.0, "0"), rollback("other", who, 41.0, "1")]
    wanted = plan(["e"], verdicts, orders, servings, frozen=False, attempts=2)
    assert wanted.stable is not None
    assert wanted.stable.version == serves


async def test_a_version_that_is_being_loaded_when_the_daemon_dies_is_on_trial_when_it_serves(tmp_path):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    bench.store.save([bench.promote(3)])
    engine = bench.engines["serving"]
    assert isinstance(engine, FakeEngine)
    assert isinstance(bench.runner, FakeRunner)
    engine.current = 3
    bench.runner.left["serving"] = SwapReport(result="swapped", version=3, finished=bench.clock.now)
    await bench.restart()
    assert kinds(await bench.tick()) == [("swapped", 3)]
    assert (standing(bench), bench.runner.calls) == ((0, 3, None), [])


async def test_what_was_before_the_world_changed_is_no_measure(bench):
    bench.clock.now += 5
    await bench.tell(bench.order("drift", cause="tools"))
    bench.clock.now += 60
    bench.runs(0, 20, solved=6, ago=10)
    await bench.tell(bench.promote(3))
    bench.runs(3, 32, solved=10)
    bench.clock.now += 60
    (order,) = await bench.tick()
    assert order.kind == "roll_on"
    assert "before 6/20" in order.reason


async def test_a_drift_of_another_agent_leaves_what_was_before_as_it_was(bench):
    bench.clock.now += 5
    await bench.tell(bench.order("drift", cause="tools", tenant="default", agent="default/another#1"))
    await bench.tell(bench.promote(3))
    bench.runs(3, 12, solved=2)
    order, *_ = await bench.tick()
    assert order.kind == "rollback"
    assert "20 of 100 before" in order.reason


def of_parties(bench: Bench, version: int, outcomes: dict[str, list[float]], ago: float = 0.0) -> None:
    at = bench.clock.now - ago
    bench.store.save([
        Trajectory(
            id=f"{version}-{caller}-{n}", caller=caller, steps=(Step(exchange_id=f"e{version}-{caller}-{n}"),),
            outcome=outcome, started=at, ended=at, min_version=version, max_version=version,
        )
        for caller, listed in outcomes.items() for n, outcome in enumerate(listed)
    ])  # fmt: skip


@pytest.mark.parametrize("seconds", [0, 60])
async def test_one_party_of_five_ends_no_trial_whatever_it_reports(tmp_path, seconds):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    honest = {f"k{n}": [1.0] * 9 + [0.0] for n in range(6)}
    of_parties(bench, 0, honest | {"liar": [1.0] * 15}, ago=10)
    await bench.tell(bench.promote(3))
    of_parties(bench, 3, honest | {"liar": [0.0] * 15})
    bench.clock.now += seconds
    orders = await bench.tick()
    assert [order.kind for order in orders if isinstance(order, Directive)] == (["roll_on"] if seconds else [])
    if seconds:
        assert "default/liar" in orders[0].reason


async def test_one_party_of_five_that_reports_successes_hides_no_fall(tmp_path):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    of_parties(bench, 0, {f"k{n}": [1.0] * 9 + [0.0] for n in range(6)} | {"liar": [1.0] * 15}, ago=10)
    await bench.tell(bench.promote(3))
    of_parties(bench, 3, {f"k{n}": [1.0] * 3 + [0.0] * 7 for n in range(6)} | {"liar": [1.0] * 15})
    order, *_ = await bench.tick()
    assert order.kind == "rollback"


async def test_small_steps_down_add_up(bench):
    bench.runs(0, 200, solved=180, ago=9)
    await bench.stable(3)
    bench.runs(3, 40, solved=28, ago=1)
    bench.clock.now += 60
    await bench.tell(bench.promote(5))
    bench.runs(5, 32, solved=18)
    bench.clock.now += 60
    first, *_ = await bench.tick()
    assert (first.kind, first.details["version"], first.details["to"]) == ("rollback", "5", "0")
    assert "lately" in first.reason


async def test_a_version_that_looks_worse_is_watched_for_longer_and_no_deadline_ends_that(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 32, solved=22)
    bench.clock.now += 3600
    assert await bench.tick() == [], "69 % after 80 %: not shown, and not taken"
    bench.runs(3, 32, solved=25)
    assert kinds(await bench.tick()) == [("roll_on", 3)]
