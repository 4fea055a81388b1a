"""A promoted version is on trial: at the only engine against what served before, at one of three against the others."""

import json

import msgspec
import pytest

from actors.messages.signing import record_problem
from actors.ports.errors import EngineUnavailable
from actors.ports.store import SwapReport
from tests.unit.actors.deployment.made import Bench, kinds

pytestmark = pytest.mark.anyio
ALONE, FLEET = (pytest.mark.parametrize("size", [size]) for size in (1, 3))


@pytest.fixture(params=[1, 3], ids=["alone", "fleet"])
def size(request) -> int:
    return request.param


@pytest.fixture
async def bench(tmp_path, size) -> Bench:
    bench = Bench(tmp_path, size)
    await bench.swapper.start()
    assert kinds(await bench.tick()) == [("started", name, 0) for name in bench.engines]
    assert await bench.tick() == []
    return bench


async def test_a_promoted_version_is_on_trial_at_one_engine_with_its_share(bench, size):
    assert kinds(await bench.begin()) == [("swapped", "a", 3)]
    assert await bench.tick() == []
    assert (bench.standing, bench.versions) == ((0, 3, None), [3, 0, 0][:size])
    share = 1.0 if size == 1 else 1 / 3
    fleet = bench.swapper.fleet
    assert [(view.version, view.canary_share) for view in fleet.engines.values()] == [(3, share), (0, 0), (0, 0)][:size]
    assert (fleet.canary_engine, fleet.good) == ("a", (0,))
    if size == 1:
        assert not (bench.path / "routes.json").exists(), "the tap has nothing to choose"
    else:
        assert (bench.routes.canary, bench.routes.share, bench.routes.versions) == (
            "a",
            1 / 3,
            {"a": 3, "b": 0, "c": 0},
        )
        assert (bench.runner.closed, bench.routes.closed) == ([("a",)], ()), "told before the pause, and afterwards"


async def test_a_version_that_does_as_well_is_taken_once_enough_have_an_outcome(bench, size):
    await bench.begin()
    bench.runs(3, 31, solved=25)
    assert await bench.tick(60) == [], "too few have an outcome"
    bench.runs(3, 1, solved=1)
    order, *swaps = await bench.tick()
    assert (kinds([order, *swaps]), record_problem(order, bench.keys)) == (bench.on(), "")
    assert "26/32 solved" in order.reason
    assert f"{'before' if size == 1 else 'elsewhere'} 80/100" in order.reason
    assert (bench.standing, bench.versions) == ((3, None, None), [3] * size)
    if size > 1:
        assert (bench.runner.closed, bench.routes.canary) == ([("a",), ("b",), ("c",)], "")
    await bench.restart()
    assert await bench.tick() == []


async def test_a_trial_lasts_its_time_however_many_runs_there_are(bench):
    await bench.begin()
    bench.runs(3, 50, solved=40)
    assert await bench.tick(50) == []
    assert kinds(await bench.tick(10)) == bench.on()


async def test_a_worse_version_goes_back_with_the_reason_and_never_comes_again(bench, size):
    await bench.begin()
    bench.runs(3, 12, solved=2)
    order, *swaps = await bench.tick()
    assert kinds([order, *swaps]) == bench.back()
    assert order.details == {"version": "3", "engine": "a", "to": "0"}
    assert f"10 of 12 runs with failures, 20 of 100 {'before' if size == 1 else 'elsewhere'}" in order.reason
    assert {engine for engine, _ in bench.runner.calls} == {"a"}
    await bench.restart()
    assert await bench.tell(msgspec.structs.replace(bench.promote(3), id="again")) == []
    assert (bench.standing, bench.versions) == ((0, None, None), [0] * size)
    order = bench.order("promote", version="3")
    assert kinds(await bench.tell(order)) == [("swapped", "a", 3)], "a person may bring it back"


async def test_errors_of_tools_and_calls_that_never_became_a_run_count_like_failures(bench):
    await bench.begin()
    bench.runs(3, 12, errors=9)
    assert kinds(await bench.tick()) == bench.back()
    await bench.begin(4)
    bench.runs(4, 8)
    bench.store.lost = {("a", f"run{n}") for n in range(8)}
    order, *_ = await bench.tick()
    assert (order.kind, "8 of 16 runs with errors" in order.reason) == ("rollback", True)


@ALONE
async def test_an_engine_that_failed_as_many_calls_before_says_nothing_of_the_version(bench):
    await bench.begin()
    bench.runs(3, 16)
    bench.store.lost = {("a", f"run{n}") for n in range(8)}
    bench.store.lost_before = {("a", f"old{n}") for n in range(50)}
    assert await bench.tick() == []


async def test_what_waits_is_tried_next_if_the_trial_ends_well(bench):
    await bench.begin()
    for version in (4, 5):
        assert await bench.tell(bench.promote(version)) == []
    assert bench.standing == (0, 3, 5)
    bench.runs(3, 32, solved=26)
    rolled, *others = bench.on()
    assert kinds(await bench.tick(60)) == [rolled, ("swapped", "a", 5), *others]
    assert (bench.standing, bench.swapper.fleet.canary_runs) == ((3, 5, None), 0)


async def test_what_waits_is_dropped_if_the_trial_ends_badly(bench):
    await bench.begin()
    await bench.tell(bench.promote(4))
    bench.runs(3, 12, solved=1)
    assert kinds(await bench.tick()) == bench.back()
    assert (await bench.tick(), bench.standing) == ([], (0, None, None))
    assert await bench.tell(bench.promote(5, incumbent=3)) == [], "better than what was bad"
    assert kinds(await bench.tell(bench.promote(6))) == [("swapped", "a", 6)]


async def test_with_little_feedback_a_trial_ends_at_its_deadline(bench):
    await bench.begin()
    assert await bench.tick(3600) == [], "not one run: nothing is known of it"
    bench.runs(3, 7, solved=6)
    assert await bench.tick() == [], "seven outcomes say nothing"
    bench.runs(3, 2, solved=2)
    bench.runs(0, 8, solved=7)
    order, *_ = await bench.tick()
    assert (order.kind, "the deadline passed" in order.reason) == ("roll_on", True)


@ALONE
async def test_outcomes_that_come_late_count_on_either_side_however_many_runs_came_since(bench):
    before = bench.runs(0, 100, ago=20)
    bench.runs(0, 400, ago=10)
    await bench.tell(bench.promote(3))
    early = bench.runs(3, 12)
    bench.clock.now += 5
    bench.runs(3, 1000)
    assert await bench.tick() == []
    fleet = bench.swapper.fleet
    assert (fleet.canary_judged, fleet.canary_runs) == (0, 1012), "all are read before there is a look"
    bench.store.save([msgspec.structs.replace(run, outcome=0.0) for run in early])
    for _ in range(4):
        assert await bench.tick(5) == [], "nothing is known of the version before"
    bench.store.save([msgspec.structs.replace(run, outcome=1.0) for run in before])
    bench.runs(3, 6, solved=1)
    assert kinds(await bench.tick(5)) == bench.back()


@ALONE
async def test_runs_of_neither_version_and_of_both_count_on_no_side(bench):
    await bench.begin()
    bench.runs(9, 50, solved=0)
    bench.runs(3, 50, solved=0, min_version=0)
    bench.runs(0, 50, solved=50)
    bench.runs(3, 8, solved=7)
    await bench.tick()
    fleet = bench.swapper.fleet
    assert (fleet.canary_judged, fleet.canary_runs, bench.standing) == (8, 8, (0, 3, None))


@ALONE
@pytest.mark.parametrize("goal", ["Plan a tour of five cities with my family", "Translate this treaty into Latin"])
async def test_harder_requests_and_new_ones_since_the_swap_are_not_held_against_the_version(bench, goal):
    bench.runs(0, 300, solved=285, ago=20, goal="Change the date of my flight")
    bench.runs(0, 80, solved=40, errors=40, ago=10, goal="Plan a tour of five cities with my family")
    await bench.tell(bench.promote(3))
    bench.runs(3, 40, solved=20, errors=20, goal=goal)
    assert kinds(await bench.tick(60)) == bench.on()


async def test_an_operators_order_is_on_trial_and_the_second_one_ends_the_trial(bench, size):
    for solved, end in ((1, bench.back(7)), (None, [])):
        bench.runs(0, 100, solved=80, ago=10)
        assert kinds(await bench.tell(bench.order("promote", version="7"))) == [("swapped", "a", 7)]
        bench.runs(0, 100, solved=80)
        bench.runs(7, 12, solved=solved)
        assert kinds(await bench.tick()) == end
    results = kinds(await bench.tell(bench.order("promote", version="7")))
    assert (results, bench.standing) == (bench.on(7)[1:], (7, None, None))


async def test_a_daemon_that_restarts_goes_on_with_the_trial_and_has_no_look_for_free(bench, size):
    await bench.begin()
    bench.runs(3, 12, solved=9)
    assert await bench.tick() == []
    since, looks = bench.swapper.fleet.canary_since, json.loads(bench.store.state["swapper/canary"])
    assert looks["failures"] == (2 if size == 1 else 3), "twelve came at once: looks that were skipped are gone"
    await bench.restart()
    assert (await bench.tick(), bench.swapper.fleet.canary_since) == ([], since)
    assert json.loads(bench.store.state["swapper/canary"]) == looks
    bench.runs(3, 20, solved=16)
    assert kinds(await bench.tick(60)) == bench.on()


async def test_an_engine_that_comes_up_with_old_weights_is_brought_back_to_the_trial_twice(bench):
    await bench.begin()
    for _ in range(2):
        bench.engines["a"].current = 0
        assert kinds(await bench.tick()) == [("swapped", "a", 3)]
    order, *swaps = await bench.tick()
    assert (kinds([order, *swaps]), "came up again without it 2 times" in order.reason) == (bench.back(), True)
    assert bench.standing == (0, None, None)


async def test_a_version_that_cannot_be_loaded_ends_its_own_trial_and_reaches_no_other_engine(bench, size):
    bench.runner.reports[3] = SwapReport(result="rolled_back", version=3, reason="NaN")
    assert kinds(await bench.begin()) == [("rolled_back", "a", 3)]
    assert bench.standing == (0, 3, None)
    assert kinds(await bench.tick()) == [("rolled_back", "a", 3)]
    assert (await bench.tick(), bench.standing, bench.versions) == ([], (0, None, None), [0] * size)


@pytest.mark.parametrize("halt", [True, False], ids=["halted", "frozen"])
async def test_while_nothing_may_come_in_a_trial_is_not_ended_well(bench, halt):
    await bench.begin()
    bench.halted = "incident 4711" if halt else ""
    await bench.tell(*[] if halt else [bench.order("freeze")])
    bench.runs(3, 40, solved=32)
    assert await bench.tick(60) == []
    assert await bench.tell(bench.promote(4)) == []
    assert bench.standing == (0, 3, None)
    bench.engines["a"].current = 0
    assert kinds(await bench.tick()) == [("swapped", "a", 3)], "an engine is still brought back to what it served"
    bench.halted = ""
    rolled, *others = bench.on()
    thawed = await bench.tell(*[] if halt else [bench.order("thaw")])
    assert kinds(thawed) == [rolled, ("swapped", "a", 4), *others]


@pytest.mark.parametrize("halt", [True, False], ids=["halted", "frozen"])
async def test_while_nothing_may_come_in_a_worse_version_still_goes_back(bench, halt):
    await bench.begin()
    bench.halted = "incident 4711" if halt else ""
    await bench.tell(*[] if halt else [bench.order("freeze")])
    bench.runs(3, 12, solved=0)
    assert kinds(await bench.tick()) == bench.back()


async def test_whoever_orders_the_trial_back_ends_it_and_a_second_order_does_not_end_the_next(bench):
    await bench.begin()
    assert kinds(await bench.tell(bench.order("rollback", version="3", to="0"))) == [("swapped", "a", 0)]
    await bench.tell(bench.promote(4))
    assert await bench.tell(bench.order("rollback", version="3", to="0")) == []
    assert bench.standing == (0, 4, None)


async def test_a_rollback_further_back_ends_the_trial_with_what_was_stable(bench, size):
    await bench.stable(3)
    await bench.tell(bench.promote(4))
    await bench.tell(bench.promote(5))
    assert bench.versions == [4, 3, 3][:size]
    await bench.tell(bench.order("rollback", version="3", to="0"))
    assert (bench.versions, bench.standing, await bench.tick()) == ([0] * size, (0, None, None), [])


@ALONE
async def test_without_anything_good_to_go_back_to_there_is_no_trial(tmp_path, size):
    bench = Bench(tmp_path)
    bench.engines["a"].current = 3
    bench.store.save([bench.promote(3)])
    bench.clock.now += 1
    await bench.swapper.start()
    assert (kinds(await bench.tick()), bench.standing) == ([("started", "a", 3)], (3, None, None))
    await bench.tell(bench.order("rollback", version="3"))
    assert bench.standing == (None, None, None), "a person must look"
    order = bench.order("promote", version="4")
    assert (kinds(await bench.tell(order)), bench.standing) == ([("swapped", "a", 4)], (4, None, None))


@ALONE
async def test_a_version_that_is_being_loaded_when_the_daemon_dies_is_on_trial_when_it_serves(bench):
    bench.store.save([bench.promote(3)])
    bench.engines["a"].current = 3
    bench.runner.left["a"] = SwapReport(result="swapped", version=3, paused_seconds=0.07, finished=bench.clock.now)
    await bench.restart()
    (serving,) = await bench.tick()
    assert (serving.result, serving.version, serving.previous, serving.paused_seconds) == ("swapped", 3, 0, 0.07)
    assert (bench.standing, bench.runner.calls) == ((0, 3, None), [])


@ALONE
@pytest.mark.parametrize(
    ("agent", "end", "says"),
    [
        ({}, "roll_on", "before 6/20"),
        ({"tenant": "default", "agent": "default/another#1"}, "rollback", "of 120 before"),
    ],
    ids=["everybody", "another-agent"],
)
async def test_what_was_before_the_world_of_an_agent_changed_is_no_measure_of_it(bench, agent, end, says):
    bench.runs(0, 100, solved=80, ago=10)
    await bench.tick(5)
    await bench.tell(bench.order("drift", cause="tools", **agent))
    bench.clock.now += 60
    bench.runs(0, 20, solved=6, ago=10)
    await bench.tell(bench.promote(3))
    bench.runs(3, 32, solved=10)
    order, *_ = await bench.tick(60)
    assert (order.kind, says in order.reason) == (end, True)


def of_parties(bench: Bench, version: int, honest: int, liar: int, ago: float = 0.0) -> None:
    """Ten runs of each of six callers, `honest` of them solved, and fifteen of one who says that `liar` were."""
    for number in range(6):
        bench.runs(version, 10, solved=honest, ago=ago, caller=f"k{number}")
    bench.runs(version, 15, solved=liar, ago=ago, caller="liar")


@pytest.mark.parametrize(
    ("honest", "liar", "seconds", "end"),
    [(9, 0, 0, ""), (9, 0, 60, "roll_on"), (3, 15, 0, "rollback")],
    ids=["makes up a fall", "is told when the trial ends well", "hides a fall"],
)
async def test_one_party_of_five_neither_ends_a_trial_nor_saves_one(bench, honest, liar, seconds, end):
    of_parties(bench, 0, 9, 15, ago=10)
    await bench.tell(bench.promote(3))
    of_parties(bench, 0, 9, 15)
    of_parties(bench, 3, honest, liar)
    orders = await bench.tick(seconds)
    assert [order.kind for order in orders[:1]] == ([end] if end else [])
    if end == "roll_on":
        assert "default/liar" in orders[0].reason


@ALONE
async def test_small_steps_down_add_up(bench):
    bench.runs(0, 300, solved=260, ago=9)
    await bench.stable(3)
    bench.runs(3, 40, solved=28, ago=1)
    await bench.tick(60)
    await bench.tell(bench.promote(5))
    bench.runs(5, 32, solved=18)
    first, *_ = await bench.tick(60)
    assert (first.kind, first.details["version"], first.details["to"]) == ("rollback", "5", "0")
    assert "lately" in first.reason


async def test_a_party_that_floods_a_trial_with_successes_does_not_pass_it(bench):
    for version, count, solved, ago in ((0, 30, 27, 10), (0, 30, 27, 0), (3, 12, 2, 0)):
        for number in range(4):
            bench.runs(version, count, solved=solved, ago=ago, caller=f"k{number}")
        bench.clock.now += 1
        bench.runs(version, 600, solved=600, ago=ago, caller="liar")
        if ago:
            await bench.tell(bench.promote(3))
    assert [order.kind for order in (await bench.tick(60))[:1]] == ["rollback"]


@ALONE
async def test_a_party_that_floods_what_was_before_hides_no_errors(bench):
    for version, count, errors, ago in ((0, 40, 0, 10), (3, 12, 9, 0)):
        for number in range(4):
            bench.runs(version, count, errors=errors, ago=ago, caller=f"k{number}")
        bench.clock.now += 1
        bench.runs(version, 600, ago=ago, caller="flood")
        if ago:
            await bench.tell(bench.promote(3))
    assert [order.kind for order in (await bench.tick(60))[:1]] == ["rollback"]


@ALONE
async def test_what_is_down_against_versions_further_back_shows_however_many_outcomes_the_last_ones_had(bench):
    bench.runs(0, 384, solved=376, ago=9)
    for version in (3, 4):
        bench.clock.now += 60
        await bench.stable(version)
        bench.runs(version, 384, solved=315, ago=1)
    await bench.tell(bench.promote(5))
    bench.runs(5, 32, solved=20)
    first, *_ = await bench.tick(60)
    assert (first.kind, "lately" in first.reason) == ("rollback", True)


@ALONE
@pytest.mark.parametrize(("solved", "end"), [(29, "roll_on"), (4, "rollback")])
async def test_runs_that_name_no_version_count_by_what_served_when_they_began(bench, solved, end):
    bench.runs(-1, 100, solved=0, ago=100)
    bench.clock.now += 60
    bench.runs(-1, 100, solved=90, ago=10)
    await bench.tell(bench.promote(3))
    bench.runs(-1, 32, solved=solved)
    order, *_ = await bench.tick(60)
    assert (order.kind, "90/100" in order.reason or "10 of 100" in order.reason) == (end, True)


@FLEET
async def test_nothing_new_is_swapped_in_while_no_other_engine_serves_and_the_way_back_is_open(bench):
    bench.engines["b"].down = bench.engines["c"].down = True
    assert await bench.tell(bench.promote(3)) == []
    assert bench.swapper.fleet.engines["a"].note == "waits for another engine to serve"
    bench.engines["c"].down = False
    assert kinds(await bench.tick()) == [("swapped", "a", 3)]
    bench.engines["c"].down = True
    assert kinds(await bench.tell(bench.order("rollback", version="3", to="0"))) == [("swapped", "a", 0)]


@FLEET
async def test_an_engine_that_was_away_is_caught_up_unless_nothing_may_come_in(bench):
    bench.engines["c"].down = True
    await bench.stable(3)
    assert (bench.versions, "c" in bench.routes.versions) == ([3, 3, 0], False)
    bench.engines["c"].down, bench.halted = False, "x"
    assert (await bench.tick(), bench.versions) == ([], [3, 3, 0])
    bench.halted = ""
    assert kinds(await bench.tick()) == [("swapped", "c", 3)]


@FLEET
async def test_an_engine_that_does_not_take_what_the_canary_passed_is_left_behind(bench):
    await bench.begin()
    bench.runs(3, 32, solved=26)
    bench.runner.reports[3] = SwapReport(result="refused", version=3, reason="disk")
    assert kinds(await bench.tick(60)) == [("roll_on", 3), ("refused", "b", 3)]
    assert kinds(await bench.tick()) == [("refused", "b", 3)]
    del bench.runner.reports[3]
    assert kinds(await bench.tick()) == [("swapped", "c", 3)]
    assert (bench.versions, bench.swapper.fleet.engines["b"].note) == ([3, 0, 3], "did not take what is stable")


@FLEET
async def test_an_engine_that_falls_silent_when_it_is_to_be_swapped_is_swapped_with_the_next_tick(bench):
    """Its program could not so much as ask what it serves: nothing was done, and it is no failure of the version."""
    await bench.begin()
    bench.runs(3, 32, solved=26)
    bench.runner.reports[3] = EngineUnavailable("b: no answer to /weight_info within 30 s")
    assert kinds(await bench.tick(60)) == [("roll_on", 3)]
    notes = {name: view.note for name, view in bench.swapper.fleet.engines.items()}
    assert notes["b"] == notes["c"] == "EngineUnavailable: b: no answer to /weight_info within 30 s"
    assert (bench.routes.canary, bench.routes.closed) == ("", ()), "whoever answers is open"
    bench.runner.reports.clear()
    await bench.restart()
    assert kinds(await bench.tick()) == [("swapped", "b", 3), ("swapped", "c", 3)]
    assert [view.note for view in bench.swapper.fleet.engines.values()] == ["", "", ""]


@FLEET
async def test_the_routes_are_renewed_before_they_get_stale_and_not_with_every_tick(bench):
    first = bench.routes.until
    for seconds, renewed in ((0, False), (9, False), (3, True)):
        await bench.tick(seconds)
        assert (bench.routes.until > first) is renewed
