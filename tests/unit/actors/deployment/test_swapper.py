"""The reconciler: what should serve, and how it comes to serve."""

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from actors.deployment import swapper as swapper_module
from actors.deployment.pinned_versions import aged
from actors.deployment.swapper import Swapper, SwapperSettings
from actors.messages import Directive, Message, Serving, Step, ToolCall, Trajectory, Verdict
from actors.messages.signing import sign
from actors.ports.errors import SwapFailed
from actors.ports.store import SwapReport
from actors.system.actor import Received
from actors.versions.desired_state import FORWARD, plan
from actors.versions.version_timeline import VersionTimeline
from tests.support.fakes import Clock, FakeEngine, FakeRunner, FakeStore, candidate
from tests.support.keys import key_pair

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self, tmp_path: Path, *names: str) -> None:
        self.path, self.clock, self.store = tmp_path, Clock(), FakeStore()
        self.engines = {name: FakeEngine(name) for name in names or ("serving",)}
        self.runner = FakeRunner(*self.engines.values())
        self.key, self.keys = key_pair(tmp_path / "keys")
        self.times = VersionTimeline(self.clock)
        self.swapper = self.make()
        candidate(0, tmp_path / "v000000")

    def make(self) -> Swapper:
        return Swapper(
            SwapperSettings(),
            store=self.store,
            engines=self.engines,
            runner=self.runner,
            versions=self.path,
            key=self.key,
            keys=self.keys,
            clock=self.clock,
            times=self.times,
        )

    async def restart(self) -> None:
        self.swapper = self.make()
        await self.swapper.start()

    async def tell(self, *messages: Message) -> list[Serving]:
        self.store.save([message for message in messages if not isinstance(message, Directive) or message.kind])
        return self.take(await self.swapper.handle([Received(message.id, "any", message) for message in messages]))

    async def tick(self) -> list[Serving]:
        return self.take(await self.swapper.tick())

    def take(self, result) -> list[Serving]:
        self.clock.now += 1
        self.store.save(result.records)
        found = [output.message for output in result.outputs]
        assert found == list(result.records)
        return found

    def promote(self, version: int, **changes) -> Verdict:
        made = candidate(version, self.path / f"v{version:06d}")
        verdict = Verdict(
            id=f"verdict-{version}-{self.clock.now}", version=version, path=made.path, manifest=made.manifest,
            incumbent=0, decision="promote", reason="better", created=self.clock.now,
        )  # fmt: skip
        return sign(msgspec.structs.replace(verdict, **changes), self.key)

    def runs(
        self, version: int, count: int, *, solved: int | None = None, errors: int = 0, goal: str = "", ago: float = 0.0
    ) -> list[Trajectory]:
        """`count` production runs under `version` that began and ended `ago` seconds ago; without `solved` nobody has
        said yet how they went."""
        at, made = self.clock.now - ago, list[Trajectory]()
        for n in range(count):
            key = f"{at}-{version}-{goal}-{solved is None}-{n}"
            step = Step(
                exchange_id=f"e-{key}",
                tool_calls=(ToolCall("book", "{}"),),
                observation='{"error": "no"}' if n < errors else "{}",
            )
            outcome = None if solved is None else float(n < solved)
            made.append(
                Trajectory(
                    id=f"run-{key}", goal=goal, steps=(step,), outcome=outcome, started=at, ended=at,
                    min_version=version, max_version=version,
                )
            )  # fmt: skip
        self.store.save(made)
        return made

    async def stable(self, version: int) -> list[Serving]:
        """Promote `version`, and say by hand that it has been on trial for long enough."""
        await self.tell(self.promote(version))
        return await self.tell(self.order("promote", version=str(version)))

    def order(self, kind, **details: str) -> Directive:
        if kind in ("freeze", "thaw"):
            self.store.is_frozen = kind == "freeze"
        order = Directive(
            id=f"{kind}-{self.clock.now}", kind=kind, reason="", origin="test", created=self.clock.now, details=details
        )
        return sign(order, self.key) if kind in FORWARD else order


@pytest.fixture
async def bench(tmp_path) -> Bench:
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    return bench


def versions(bench: Bench) -> list[int]:
    return [engine.current for engine in bench.engines.values()]


async def test_the_first_look_books_what_is_there(tmp_path):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    (serving,) = await bench.tick()
    assert (serving.result, serving.version, serving.path) == ("started", 0, str(tmp_path / "v000000"))
    assert await bench.tick() == []
    assert bench.runner.calls == []


@pytest.mark.parametrize(("there", "starts_at"), [(True, 7), (False, 0)])
async def test_an_engine_with_a_label_starts_from_it_only_if_the_version_is_ours(tmp_path, there, starts_at):
    bench = Bench(tmp_path)
    bench.engines["serving"].current = 7
    if there:
        (tmp_path / "v000007").mkdir()
    await bench.swapper.start()
    (serving,) = await bench.tick()
    assert (serving.result, serving.version) == ("started", starts_at)
    swapped = [(event.result, event.version) for event in await bench.tick()]
    assert (swapped, versions(bench)) == ([] if there else [("swapped", 0)], [starts_at])


async def test_a_promoted_version_is_swapped_in_once(bench):
    (serving,) = await bench.tell(bench.promote(3))
    assert (serving.result, serving.version, serving.previous) == ("swapped", 3, 0)
    assert serving.paused_seconds == 0.02
    assert await bench.tick() == []
    assert bench.runner.calls == [("serving", 3)]
    assert bench.swapper.pauses["serving"].sum == 0.02
    fleet = bench.swapper.fleet
    assert (fleet.stable, fleet.canary, fleet.canary_engine, fleet.canary_since) == (0, 3, "serving", serving.since)


async def test_the_same_verdict_twice_changes_nothing(bench):
    verdict = bench.promote(3)
    await bench.tell(verdict)
    assert await bench.tell(verdict) == []


@pytest.mark.parametrize("decision", ["hold", "reject"])
async def test_only_promotions_count(bench, decision):
    assert await bench.tell(bench.promote(3, decision=decision)) == []


async def test_an_unsigned_or_changed_verdict_is_ignored_and_counted(bench):
    good = bench.promote(3)
    bad = [
        msgspec.structs.replace(good, signature=""),
        msgspec.structs.replace(good, id="other", path="/elsewhere"),
    ]
    assert await bench.tell(*bad) == []
    assert bench.swapper.unsigned == 2
    assert versions(bench) == [0]


async def test_a_directory_that_was_changed_after_the_verdict_is_refused(bench):
    verdict = bench.promote(3)
    (bench.path / "v000003" / "manifest.json").write_bytes(b"{}")
    (serving,) = await bench.tell(verdict)
    assert (serving.result, versions(bench)) == ("refused", [0])
    assert "manifest" in serving.reason


async def test_a_version_that_fails_is_tried_a_bounded_number_of_times(bench):
    bench.runner.reports[3] = SwapReport(result="refused", version=3, reason="NaN")
    results = [serving.result for serving in await bench.tell(bench.promote(3))]
    for _ in range(5):
        results += [serving.result for serving in await bench.tick()]
    assert results == ["refused", "refused"]
    assert versions(bench) == [0]
    (serving,) = await bench.tell(bench.promote(4))
    assert (serving.result, serving.version) == ("swapped", 4)


async def test_a_swap_that_ended_badly_counts_as_rolled_back(bench):
    bench.runner.reports[3] = SwapFailed("canary differs")
    (serving,) = await bench.tell(bench.promote(3))
    assert (serving.result, serving.reason) == ("rolled_back", "canary differs")


async def test_a_rollback_goes_to_the_version_before_and_stays_there(bench):
    await bench.stable(3)
    await bench.tell(bench.promote(5))
    (serving,) = await bench.tell(bench.order("rollback", version="5", to="3"), bench.order("freeze"))
    assert (serving.version, serving.previous) == (3, 5)
    await bench.restart()
    assert await bench.tick() == []
    assert await bench.tell(bench.promote(5)) == [], "a version that was rolled back does not come back"


async def test_a_rollback_without_names_leaves_what_serves(bench):
    await bench.tell(bench.promote(3))
    (serving,) = await bench.tell(bench.order("rollback"))
    assert (serving.version, serving.result) == (0, "swapped")


async def test_while_frozen_nothing_new_is_swapped_in_and_after_the_thaw_it_is(bench):
    await bench.tell(bench.order("freeze"))
    assert await bench.tell(bench.promote(3)) == []
    (serving,) = await bench.tell(bench.order("thaw"))
    assert serving.version == 3


async def test_while_frozen_an_engine_is_still_brought_back_to_what_it_served(bench):
    await bench.tell(bench.promote(3))
    await bench.tell(bench.order("freeze"))
    bench.engines["serving"].current = 0
    (serving,) = await bench.tick()
    assert (serving.version, serving.previous) == (3, 0)


async def test_an_engine_that_was_restarted_gets_the_last_good_version(bench):
    await bench.tell(bench.promote(3))
    bench.engines["serving"].current = -1
    await bench.restart()
    (serving,) = await bench.tick()
    assert (serving.version, versions(bench)) == (3, [3])


async def test_a_swap_that_a_dead_daemon_could_not_book_is_booked_by_the_next(bench):
    verdict = bench.promote(3)
    bench.store.save([verdict])
    bench.engines["serving"].current = 3
    bench.runner.left["serving"] = SwapReport(
        result="swapped", version=3, paused_seconds=0.07, total_seconds=0.1, finished=bench.clock.now
    )
    await bench.restart()
    (serving,) = await bench.tick()
    assert (serving.version, serving.previous, serving.paused_seconds) == (3, 0, 0.07)
    assert bench.runner.calls == []


async def test_a_report_that_is_in_the_books_is_not_booked_again(bench):
    await bench.tell(bench.promote(3))
    bench.runner.left["serving"] = SwapReport(result="swapped", version=3, finished=bench.clock.now - 5)
    await bench.restart()
    assert await bench.tick() == []


async def test_a_lost_report_is_found_out_from_the_engine(bench):
    bench.store.save([bench.promote(3)])
    bench.engines["serving"].current = 3
    await bench.restart()
    (serving,) = await bench.tick()
    assert (serving.result, serving.version, serving.reason) == ("swapped", 3, "found")


async def test_an_engine_that_is_away_is_logged_once_and_caught_up(bench):
    bench.engines["serving"].down = True
    with capture_logs() as logs:
        assert await bench.tell(bench.promote(3)) == []
        assert await bench.tick() == []
        bench.engines["serving"].down = False
        (serving,) = await bench.tick()
    assert serving.version == 3
    names = [entry["event"] for entry in logs]
    assert names.count("engine_not_reconciled") == 1
    assert names.count("engine_reconciled") == 1


def test_the_goal_is_what_was_decided_last():
    def verdict(version: int, at: float, incumbent: int = 0) -> Verdict:
        return Verdict(
            id=str(at), version=version, path=f"/v{version}", manifest="m", incumbent=incumbent, decision="promote",
            reason="", created=at,
        )  # fmt: skip

    def serving(version: int, at: float, result="swapped") -> Serving:
        path = f"/v{version}"
        return Serving(id=str(at), engine="e", version=version, previous=0, path=path, result=result, since=at)

    def found(*events, frozen=False):
        verdicts = [event for event in events if isinstance(event, Verdict)]
        servings = [event for event in events if isinstance(event, Serving)]
        directives = [event for event in events if isinstance(event, Directive)]
        wanted = plan(["e"], verdicts, directives, servings, frozen=frozen, attempts=2)
        goal = wanted.goal("e", frozen=frozen, canary="e")
        return goal and goal.version

    back = Directive(id="d", kind="rollback", reason="", origin="", created=5.0, details={"version": "2"})
    assert found() is None
    assert found(serving(0, 1, "started")) == 0
    assert found(serving(0, 1, "started"), verdict(2, 2)) == 2
    assert found(serving(0, 1, "started"), verdict(2, 2), verdict(3, 3)) == 3
    assert found(serving(0, 1, "started"), verdict(2, 2), frozen=True) == 0
    assert found(serving(0, 1, "started"), verdict(2, 2), serving(2, 3), frozen=True) == 2
    assert found(serving(0, 1, "started"), verdict(2, 2), serving(2, 3), back) == 0
    assert found(serving(0, 1, "started"), verdict(2, 2), serving(2, 3), back, serving(0, 6), verdict(4, 7)) == 4
    late = verdict(4, 7, incumbent=2)
    assert found(serving(0, 1, "started"), verdict(2, 2), serving(2, 3), back, late) == 0, "better than what was bad"
    again = Directive(id="p", kind="promote", reason="", origin="", created=6.0, details={"version": "2"})
    assert found(serving(0, 1, "started"), verdict(2, 2), serving(2, 3), back, again, late) == 4
    assert found(serving(0, 1, "started"), verdict(2, 2), serving(2, 3, "refused"), serving(2, 4, "refused")) == 0
    assert found(serving(2, 1, "started"), back) is None, "nothing good is left: a person must look"


async def test_versions_that_may_be_needed_again_are_pinned_on_disk_and_those_that_serve_are_named(bench):
    def pinned() -> list[str]:
        return (bench.path / "pinned").read_text().splitlines()

    assert pinned() == ["0 serving"]
    await bench.tell(bench.promote(1))
    await bench.tell(bench.promote(2))
    assert pinned() == ["0 serving", "1 serving", "2"], "0 is what a trial of 1 goes back to, 2 waits"
    await bench.tell(bench.order("promote", version="1"))
    assert pinned() == ["0", "1 serving", "2 serving"]
    await bench.tell(bench.order("promote", version="2"))
    for version in (3, 4):
        await bench.stable(version)
    assert pinned() == ["0", "2", "3", "4 serving"], "the last three, and the oldest of this quarter of an hour"


@pytest.mark.parametrize("every", [120.0, 1800.0, 36_000.0])
def test_of_what_served_one_of_each_age_stays_to_go_back_to(every):
    kept: set[int] = set()
    for version in range(400):
        now = version * every
        served = [(one, one * every) for one in range(version + 1)]
        kept = {*range(max(0, version - 2), version + 1), *aged(served, kept, now)}
        assert len(kept) <= 3 + 7
        for ago in (3600.0, 6 * 3600.0, 86_400.0):
            ages = [now - one * every for one in kept]
            assert version * every < 5 * ago or any(ago <= age <= 16 * max(ago, every) for age in ages), (version, ago)


async def test_several_versions_go_at_once_to_one_that_is_still_kept(bench):
    for version in range(1, 9):
        await bench.stable(version)
        bench.clock.now += 600.0
        await bench.tick()
    kept = {int(line.split()[0]) for line in (bench.path / "pinned").read_text().splitlines()}
    assert 5 not in kept
    (serving,) = await bench.tell(bench.order("rollback", version="8", since="6", to="5"))
    assert serving.version == max(version for version in kept if version < 5)
    assert {6, 7, 8} <= set(bench.swapper.fleet.banned)


async def test_a_full_disk_keeps_no_bad_version_serving_and_the_pins_are_written_once_there_is_room(bench, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    await bench.stable(3)
    await bench.tell(bench.promote(5))
    with monkeypatch.context() as patch:
        patch.setattr(swapper_module, "write_pins", full)
        (serving,) = await bench.tell(bench.order("rollback", version="5", to="3"), bench.order("freeze"))
        assert (serving.version, bench.swapper.unpinned > 0) == (3, True)
    before = (bench.path / "pinned").read_text()
    await bench.tick()
    assert (bench.path / "pinned").read_text() != before


async def test_what_an_engine_served_when_follows_from_looks_and_swaps(tmp_path):
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    first = bench.clock.now
    await bench.tick()
    assert bench.times.version("serving", first, first + 0.5) == 0
    await bench.tell(bench.promote(1))
    after = bench.clock.now
    assert bench.times.version("serving", first, after) == -1, "it spans the swap"
    assert bench.times.version("serving", after, after + 5) == 1
    bench.engines["serving"].down = True
    await bench.tick()
    assert bench.times.version("serving", after, after + 50) == -1, "it fell silent"
