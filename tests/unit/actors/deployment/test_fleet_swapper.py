"""Several engines: a trial on one of them, then the others, one at a time with another serving; and the ways back."""

import json
from pathlib import Path

import msgspec
import pytest

from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import Swapper, SwapperSettings
from actors.messages import Directive
from actors.messages.routes import read_routes
from actors.ports.errors import EngineUnavailable
from actors.ports.store import FailedCall, SwapReport
from tests.support.fakes import FakeRunner, candidate
from tests.unit.actors.deployment.test_swapper import Bench, versions

pytestmark = pytest.mark.anyio
CANARY = CanarySettings(share=0.2, seconds=60.0, runs=20, deadline_seconds=600.0)


class WatchfulRunner(FakeRunner):
    """Notes with every swap who else served."""

    def __init__(self, bench: "FleetBench") -> None:
        super().__init__(*bench.engines.values())
        self.bench = bench
        self.closed: list[tuple[str, ...]] = []

    async def swap(self, engine, path, version, *, manifest="", last_good=None, last_version=-1):
        self.closed.append(read_routes(self.bench.path / "routes.json").closed)
        return await super().swap(
            engine, path, version, manifest=manifest, last_good=last_good, last_version=last_version
        )


class FleetBench(Bench):
    halted = ""

    def make(self) -> Swapper:
        if not isinstance(self.runner, WatchfulRunner):
            self.runner = WatchfulRunner(self)
        return Swapper(
            SwapperSettings(canary=CANARY, close_seconds=0.0),
            store=self.store,
            engines=self.engines,
            runner=self.runner,
            versions=self.path,
            key=self.key,
            keys=self.keys,
            clock=self.clock,
            routes=self.path / "routes.json",
            halted=lambda: self.halted,
        )

    def take(self, result):
        self.clock.now += 1
        self.store.save(result.records)
        return list(result.records)

    @property
    def routes(self):
        return read_routes(self.path / "routes.json")


@pytest.fixture
async def bench(tmp_path: Path) -> FleetBench:
    bench = FleetBench(tmp_path, "a", "b", "c")
    await bench.swapper.start()
    await bench.tick()
    return bench


def kinds(records) -> list[tuple]:
    return [
        (item.kind, item.details["version"])
        if isinstance(item, Directive)
        else (item.result, item.engine, item.version)
        for item in records
    ]


async def test_every_engine_is_booked_with_what_it_came_up_with(tmp_path):
    bench = FleetBench(tmp_path, "a", "b")
    await bench.swapper.start()
    assert kinds(await bench.tick()) == [("started", "a", 0), ("started", "b", 0)]
    assert await bench.tick() == []


async def test_a_promoted_version_is_on_trial_at_one_engine_with_its_share(bench):
    assert kinds(await bench.tell(bench.promote(3))) == [("swapped", "a", 3)]
    assert await bench.tick() == []
    assert versions(bench) == [3, 0, 0]
    assert (bench.routes.canary, bench.routes.share, bench.routes.versions) == ("a", 0.2, {"a": 3, "b": 0, "c": 0})


async def test_the_tap_is_told_before_an_engine_is_paused_and_afterwards(bench):
    await bench.tell(bench.promote(3))
    assert bench.runner.closed == [("a",)]
    assert bench.routes.closed == ()


async def test_a_canary_that_does_as_well_is_rolled_on_one_engine_after_the_other(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 20, solved=16)
    bench.runs(0, 80, solved=64)
    assert await bench.tick() == [], "not before its time"
    bench.clock.now += 60
    assert kinds(await bench.tick()) == [("roll_on", "3"), ("swapped", "b", 3), ("swapped", "c", 3)]
    assert bench.runner.closed == [("a",), ("b",), ("c",)]
    assert (bench.routes.canary, versions(bench)) == ("", [3, 3, 3])
    await bench.restart()
    assert await bench.tick() == []


async def test_with_too_few_runs_the_trial_goes_on_until_the_deadline(bench):
    await bench.tell(bench.promote(3))
    bench.clock.now += 1000
    assert await bench.tick() == [], "not one run: nothing is known of it"
    bench.runs(3, 8, solved=8)
    assert await bench.tick() == [], "nothing elsewhere to compare them with"
    bench.runs(0, 8, solved=8)
    rolled, *_ = await bench.tick()
    assert rolled.kind == "roll_on"
    assert "8/8 solved" in rolled.reason
    assert "deadline" in rolled.reason


async def test_a_canary_that_fails_its_users_is_rolled_back_with_the_reason_and_never_wanted_again(bench):
    verdict = bench.promote(3)
    await bench.tell(verdict)
    bench.runs(3, 12, solved=1)
    bench.runs(0, 48, solved=40)
    order, serving = await bench.tick()
    assert kinds([order, serving]) == [("rollback", "3"), ("swapped", "a", 0)]
    assert "11 of 12 runs with failures, 8 of 48 elsewhere" in order.reason
    assert [version for engine, version in bench.runner.calls if engine != "a"] == []
    await bench.restart()
    assert await bench.tell(msgspec.structs.replace(bench.promote(3), id="again")) == []
    assert (bench.routes.canary, versions(bench)) == ("", [0, 0, 0])


async def test_errors_count_like_failures_and_calls_that_never_became_a_run_too(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 6, solved=6)
    bench.runs(0, 60, solved=50)
    bench.store.failed = [FailedCall(f"x{n}", "a", f"run{n}", bench.clock.now) for n in range(8)]
    order, *_ = await bench.tick()
    assert (order.kind, "8 of 14 runs with errors" in order.reason) == ("rollback", True)


async def test_a_canary_that_keeps_coming_up_without_its_weights_is_rolled_back(bench):
    await bench.tell(bench.promote(3))
    for _ in range(2):
        bench.engines["a"].current = 0
        assert kinds(await bench.tick()) == [("swapped", "a", 3)]
    assert kinds(await bench.tick()) == [("rollback", "3"), ("swapped", "a", 0)]


async def test_what_is_promoted_meanwhile_waits_and_only_the_newest_is_tried_next(bench):
    await bench.tell(bench.promote(3))
    for version in (4, 5):
        assert await bench.tell(bench.promote(version)) == []
    assert bench.swapper.fleet.waiting == 5
    bench.runs(3, 20, solved=16)
    bench.runs(0, 80, solved=64)
    bench.clock.now += 60
    rolled = [("roll_on", "3"), ("swapped", "a", 5), ("swapped", "b", 3), ("swapped", "c", 3)]
    assert kinds(await bench.tick()) == rolled


async def test_what_waits_for_a_trial_that_ends_badly_is_dropped_with_it(bench):
    await bench.tell(bench.promote(3))
    assert await bench.tell(bench.promote(4)) == []
    assert await bench.tell(bench.promote(5)) == []
    assert bench.swapper.fleet.waiting == 5
    bench.runs(3, 20, solved=2)
    bench.runs(0, 80, solved=64)
    assert kinds(await bench.tick()) == [("rollback", "3"), ("swapped", "a", 0)]
    assert (bench.swapper.fleet.waiting, await bench.tick()) == (None, [])
    assert kinds(await bench.tell(bench.promote(6))) == [("swapped", "a", 6)], "what is promoted later has its trial"


async def test_nothing_new_is_swapped_in_while_no_other_engine_serves(bench):
    for name in ("b", "c"):
        bench.engines[name].down = True
    assert await bench.tell(bench.promote(3)) == []
    assert bench.swapper.fleet.engines["a"].note == "waits for another engine to serve"
    bench.engines["c"].down = False
    assert kinds(await bench.tick()) == [("swapped", "a", 3)]


async def test_the_way_back_is_open_even_with_one_engine_left(bench):
    await bench.stable(3)
    bench.engines["b"].down = bench.engines["c"].down = True
    assert kinds(await bench.tell(bench.order("rollback", version="3", to="0"))) == [("swapped", "a", 0)]


async def test_an_engine_that_was_away_is_caught_up(bench):
    bench.engines["c"].down = True
    await bench.stable(3)
    assert versions(bench) == [3, 3, 0]
    assert "c" not in bench.routes.versions
    bench.engines["c"].down = False
    assert kinds(await bench.tick()) == [("swapped", "c", 3)]


async def test_what_the_canary_refuses_never_reaches_another(bench):
    bench.runner.reports[3] = SwapReport(result="rolled_back", version=3, reason="canary differs")
    results = kinds(await bench.tell(bench.promote(3)))
    for _ in range(4):
        results += kinds(await bench.tick())
    assert results == [("rolled_back", "a", 3), ("rolled_back", "a", 3)]


async def test_an_engine_that_does_not_take_what_the_canary_passed_is_left_behind(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 20, solved=16)
    bench.runs(0, 80, solved=64)
    bench.clock.now += 60
    bench.runner.reports[3] = SwapReport(result="refused", version=3, reason="disk")
    assert kinds(await bench.tick()) == [("roll_on", "3"), ("refused", "b", 3)]
    assert kinds(await bench.tick()) == [("refused", "b", 3)]
    del bench.runner.reports[3]
    assert kinds(await bench.tick()) == [("swapped", "c", 3)]
    assert versions(bench) == [3, 0, 3]
    assert bench.swapper.fleet.engines["b"].note == "did not take what is stable"


async def test_an_engine_that_falls_silent_when_it_is_to_be_swapped_is_swapped_with_the_next_tick(bench):
    """Its program could not so much as ask what it serves: nothing was done, and it is no failure of the version."""
    await bench.tell(bench.promote(3))
    bench.runs(3, 20, solved=16)
    bench.runs(0, 80, solved=64)
    bench.clock.now += 60
    bench.runner.reports[3] = EngineUnavailable("b: no answer to /weight_info within 30 s")
    assert kinds(await bench.tick()) == [("roll_on", "3")]
    notes = {name: view.note for name, view in bench.swapper.fleet.engines.items()}
    assert notes["b"] == notes["c"] == "EngineUnavailable: b: no answer to /weight_info within 30 s"
    assert (bench.routes.canary, bench.routes.closed) == ("", ()), "whoever answers is open"
    bench.runner.reports.clear()
    await bench.restart()
    assert kinds(await bench.tick()) == [("swapped", "b", 3), ("swapped", "c", 3)]
    assert [view.note for view in bench.swapper.fleet.engines.values()] == ["", "", ""]


async def test_the_tap_is_told_the_share_that_the_trial_has_by_now(bench):
    await bench.tell(bench.promote(3))
    bench.clock.now += 1
    bench.runs(0, 1)
    bench.clock.now += 900
    assert await bench.tick() == []
    assert (bench.routes.canary, bench.routes.share) == ("a", 1 / 3)
    fleet = bench.swapper.fleet
    assert (fleet.engines["a"].canary_share, fleet.canary_due, fleet.canary_grows) == (1 / 3, 4, 0.0)
    await bench.restart()
    await bench.tick()
    assert bench.routes.share == 1 / 3


@pytest.mark.promise
async def test_a_paused_engine_that_nobody_swaps_is_resumed(bench):
    bench.engines["b"].paused = True
    await bench.tick()
    assert not bench.engines["b"].paused


async def test_frozen_stops_a_roll_on_and_the_kill_switch_stops_it_too(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 20, solved=16)
    bench.runs(0, 80, solved=64)
    bench.clock.now += 60
    bench.halted = "incident 4711"
    assert await bench.tick() == []
    bench.halted = ""
    assert kinds(await bench.tick())[0] == ("roll_on", "3")


async def test_while_frozen_a_bad_canary_still_goes_back(bench):
    await bench.tell(bench.promote(3))
    bench.halted = "incident 4711"
    bench.runs(3, 20, solved=0)
    bench.runs(0, 80, solved=64)
    assert kinds(await bench.tick()) == [("rollback", "3"), ("swapped", "a", 0)]


async def test_frozen_in_mid_roll_leaves_the_rest_with_what_they_have(bench):
    bench.engines["c"].down = True
    await bench.stable(3)
    bench.engines["c"].down = False
    bench.halted = "x"
    assert await bench.tick() == []
    assert versions(bench) == [3, 3, 0]


async def test_an_operator_ends_a_trial_by_promoting_what_is_on_it(bench):
    await bench.tell(bench.promote(3))
    results = kinds(await bench.tell(bench.order("promote", version="3")))
    assert results == [("swapped", "b", 3), ("swapped", "c", 3)]


async def test_an_order_brings_in_what_no_verdict_promoted_by_way_of_a_trial(bench):
    made = candidate(7, bench.path / "v000007")
    order = bench.order("promote", version="7", path=made.path, manifest=made.manifest)
    assert kinds(await bench.tell(order)) == [("swapped", "a", 7)]


async def test_an_order_without_a_signature_brings_nothing_in_and_is_counted(bench):
    made = candidate(7, bench.path / "v000007")
    order = bench.order("promote", version="7", path=made.path, manifest=made.manifest)
    forged = [
        msgspec.structs.replace(order, signature=""),
        msgspec.structs.replace(order, id="other", details={**order.details, "version": "8"}),
        msgspec.structs.replace(bench.order("roll_on", version="7"), signature="ab" * 32),
    ]
    assert await bench.tell(*forged) == []
    assert (bench.swapper.unsigned, versions(bench)) == (3, [0, 0, 0])


async def test_a_thaw_without_a_signature_thaws_nothing(bench):
    await bench.tell(bench.order("freeze"))
    await bench.tell(msgspec.structs.replace(bench.order("thaw"), signature=""))
    assert await bench.tell(bench.promote(3)) == []


async def test_a_rollback_of_what_is_stable_ends_the_trial_that_was_to_follow_it(bench):
    await bench.stable(3)
    await bench.tell(bench.promote(4))
    assert versions(bench) == [4, 3, 3]
    await bench.tell(bench.order("rollback", version="3", to="0"))
    assert versions(bench) == [0, 0, 0]
    assert await bench.tick() == []


async def test_a_version_that_was_rolled_back_comes_back_by_order_alone(bench):
    await bench.stable(3)
    await bench.tell(bench.order("rollback", version="3", to="0"))
    assert await bench.tell(bench.promote(3)) == []
    made = candidate(3, bench.path / "v000003")
    order = bench.order("promote", version="3", path=made.path, manifest=made.manifest)
    assert kinds(await bench.tell(order)) == [("swapped", "a", 3)]


async def test_the_routes_are_renewed_before_they_get_stale_and_not_with_every_tick(bench):
    first = bench.routes.until
    await bench.tick()
    assert bench.routes.until == first
    bench.clock.now += 20
    await bench.tick()
    assert bench.routes.until > first


async def test_a_restart_is_no_second_look(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 12, solved=8)
    bench.runs(0, 48, solved=40)
    assert await bench.tick() == []
    looks = json.loads(bench.store.state["swapper/canary"])
    assert looks["failures"] == 3, "twelve came at once, more than the third look needs"
    await bench.restart()
    await bench.tick()
    assert json.loads(bench.store.state["swapper/canary"]) == looks


async def test_what_the_fleet_is_at_can_be_shown(bench):
    await bench.tell(bench.promote(3))
    bench.runs(3, 4, solved=4)
    await bench.tick()
    fleet = bench.swapper.fleet
    assert (fleet.stable, fleet.canary, fleet.canary_engine, fleet.canary_runs) == (0, 3, "a", 4)
    assert [(view.version, view.canary_share) for view in fleet.engines.values()] == [(3, 0.2), (0, 0.0), (0, 0.0)]
    assert fleet.good == (0,)
