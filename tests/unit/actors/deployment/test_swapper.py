"""The reconciler: what should serve, and how it comes to serve."""

import msgspec
import pytest
from structlog.testing import capture_logs

from actors.deployment import swapper as swapper_module
from actors.deployment.pinned_versions import aged
from actors.messages import Directive, Serving, Verdict
from actors.messages.signing import sign
from actors.ports.errors import SwapFailed
from actors.ports.store import SwapReport
from tests.unit.actors.deployment.made import Bench, kinds

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(tmp_path) -> Bench:
    bench = Bench(tmp_path)
    await bench.swapper.start()
    await bench.tick()
    return bench


@pytest.mark.parametrize(("label", "there", "starts_at"), [(0, True, 0), (7, True, 7), (7, False, 0)])
async def test_an_engine_starts_from_its_label_if_the_version_is_ours(tmp_path, label, there, starts_at):
    bench = Bench(tmp_path)
    bench.engines["a"].current = label
    if there:
        (tmp_path / f"v{label:06d}").mkdir(exist_ok=True)
    await bench.swapper.start()
    (serving,) = await bench.tick()
    path = str(tmp_path / f"v{starts_at:06d}")
    assert (serving.result, serving.version, serving.path) == ("started", starts_at, path)
    assert (kinds(await bench.tick()), bench.versions) == ([] if there else [("swapped", "a", 0)], [starts_at])
    assert await bench.tick() == []


async def test_a_promoted_version_is_swapped_in_once(bench):
    verdict = bench.promote(3)
    (serving,) = await bench.tell(verdict)
    assert (serving.result, serving.version, serving.previous) == ("swapped", 3, 0)
    assert serving.paused_seconds == bench.swapper.pauses.labels("a")._sum.get() == 0.02
    assert (await bench.tick(), await bench.tell(verdict)) == ([], [])
    assert bench.runner.calls == [("a", 3)]
    assert bench.swapper.fleet.canary_since == serving.since


@pytest.mark.parametrize("change", [{"decision": "hold"}, {"decision": "reject"}])
async def test_only_promotions_count(bench, change):
    assert await bench.tell(bench.promote(3, **change)) == []


async def test_what_brings_weights_in_counts_only_with_a_signature(bench):
    verdict, order = bench.promote(3), bench.order("promote", version="7")
    forged = [
        msgspec.structs.replace(verdict, signature=""),
        msgspec.structs.replace(verdict, id="other", path="/elsewhere"),
        msgspec.structs.replace(order, signature=""),
        msgspec.structs.replace(order, id="another", details={**order.details, "version": "8"}),
        msgspec.structs.replace(bench.order("roll_on", version="7"), signature="ab" * 32),
    ]
    assert await bench.tell(*forged) == []
    await bench.tell(bench.order("freeze"))
    thaw = msgspec.structs.replace(bench.order("thaw"), signature="")
    assert await bench.tell(thaw, bench.promote(3)) == []
    assert (bench.swapper.unsigned, bench.versions) == (6, [0])


async def test_a_directory_that_was_changed_after_the_verdict_is_refused(bench):
    verdict = bench.promote(3)
    (bench.path / "v000003" / "manifest.json").write_bytes(b"{}")
    (serving,) = await bench.tell(verdict)
    assert (serving.result, bench.versions, "manifest" in serving.reason) == ("refused", [0], True)


async def test_a_version_that_fails_is_tried_a_bounded_number_of_times(bench):
    bench.runner.reports[3] = SwapFailed("canary differs")
    (serving,) = await bench.tell(bench.promote(3))
    assert (serving.result, serving.reason) == ("rolled_back", "canary differs")
    assert [kinds(await bench.tick()) for _ in range(3)] == [[("rolled_back", "a", 3)], [], []]
    assert bench.versions == [0]
    assert kinds(await bench.tell(bench.promote(4))) == [("swapped", "a", 4)]


@pytest.mark.parametrize("details", [{"version": "5", "to": "3"}, {}], ids=["named", "what serves"])
async def test_a_rollback_goes_to_the_version_before_and_stays_there(bench, details):
    await bench.stable(3)
    await bench.tell(bench.promote(5))
    (serving,) = await bench.tell(bench.order("rollback", **details), bench.order("freeze"))
    assert (serving.result, serving.version, serving.previous) == ("swapped", 3, 5)
    await bench.restart()
    assert await bench.tick() == []
    assert await bench.tell(bench.promote(5)) == [], "a version that was rolled back does not come back"


@pytest.mark.parametrize("restarted", [True, False])
async def test_an_engine_that_came_up_anew_gets_what_it_served_even_while_frozen(bench, restarted):
    await bench.tell(bench.promote(3))
    if restarted:
        bench.engines["a"].current = -1
        await bench.restart()
    else:
        await bench.tell(bench.order("freeze"))
        bench.engines["a"].current = 0
    assert (kinds(await bench.tick()), bench.versions) == ([("swapped", "a", 3)], [3])


@pytest.mark.promise
async def test_a_paused_engine_that_nobody_swaps_is_resumed(bench):
    bench.engines["a"].paused = True
    await bench.tick()
    assert not bench.engines["a"].paused


async def test_a_report_that_is_in_the_books_is_not_booked_again(bench):
    await bench.tell(bench.promote(3))
    bench.runner.left["a"] = SwapReport(result="swapped", version=3, finished=bench.clock.now - 5)
    await bench.restart()
    assert await bench.tick() == []


async def test_a_lost_report_is_found_out_from_the_engine(bench):
    bench.store.save([bench.promote(3)])
    bench.engines["a"].current = 3
    await bench.restart()
    (serving,) = await bench.tick()
    assert (serving.result, serving.version, serving.reason) == ("swapped", 3, "found")


async def test_an_engine_that_is_away_is_logged_once_and_caught_up(bench):
    bench.engines["a"].down = True
    with capture_logs() as logs:
        assert await bench.tell(bench.promote(3)) == []
        assert await bench.tick() == []
        bench.engines["a"].down = False
        assert kinds(await bench.tick()) == [("swapped", "a", 3)]
    names = [entry["event"] for entry in logs]
    assert (names.count("engine_not_reconciled"), names.count("engine_reconciled")) == (1, 1)


def pinned(bench: Bench) -> list[str]:
    return (bench.path / "pinned").read_text().splitlines()


async def test_versions_that_may_be_needed_again_are_pinned_on_disk_and_those_that_serve_are_named(bench):
    assert pinned(bench) == ["0 serving"]
    await bench.tell(bench.promote(1))
    await bench.tell(bench.promote(2))
    assert pinned(bench) == ["0 serving", "1 serving", "2"], "0 is what a trial of 1 goes back to, 2 waits"
    await bench.tell(bench.order("promote", version="1"))
    assert pinned(bench) == ["0", "1 serving", "2 serving"]
    await bench.tell(bench.order("promote", version="2"))
    for version in (3, 4):
        await bench.stable(version)
    assert pinned(bench) == ["0", "2", "3", "4 serving"], "the last three, and the oldest of this quarter of an hour"


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
        await bench.tick(600)
    kept = {int(line.split()[0]) for line in pinned(bench)}
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
        assert kinds(await bench.tell(bench.order("rollback", version="5", to="3"))) == [("swapped", "a", 3)]
        assert bench.swapper.unpinned > 0
    before = pinned(bench)
    await bench.tick()
    assert pinned(bench) != before


async def test_what_an_engine_served_when_follows_from_looks_and_swaps(bench):
    first = bench.clock.now
    await bench.tick()
    assert bench.times.version("a", first, first + 0.5) == 0
    await bench.tell(bench.promote(1))
    after = bench.clock.now
    assert bench.times.version("a", first, after) == -1, "it spans the swap"
    assert bench.times.version("a", after, after + 5) == 1
    bench.engines["a"].down = True
    await bench.tick()
    assert bench.times.version("a", after, after + 50) == -1, "it fell silent"


@pytest.mark.parametrize("notices", [0, 1, 4])
async def test_thousands_of_rejections_and_notices_push_out_nothing_that_says_what_serves(tmp_path, notices):
    bench, last = Bench(tmp_path), 1200
    for version in range(1, last + 1):
        at = bench.clock.now = bench.clock.now + 10.0
        passed = sign(
            Directive(id=f"on{version}", kind="roll_on", reason="", origin="swapper", created=at + 3,
                      details={"version": str(version)}), bench.key,
        )  # fmt: skip
        bench.store.save([
            sign(Verdict(
                id=f"yes{version}", version=version, path=str(tmp_path), manifest="", incumbent=version - 1,
                decision="promote", reason="", created=at + 1,
            ), bench.key),
            Serving(id=f"s{version}", engine="a", version=version, previous=version - 1, path="", result="swapped",
                    since=at + 2),
            passed,
            *(Directive(id=f"n{version}-{n}", kind="notice", reason="", origin="sentinel", created=at + 4, details={})
              for n in range(notices)),
        ])  # fmt: skip
    bench.store.save([
        Verdict(id=f"no{n}", version=last + 1, path="", manifest="", incumbent=last, decision="reject", reason="",
                created=bench.clock.now + 5 + n)
        for n in range(1100)
    ])  # fmt: skip
    await bench.swapper.start()
    assert bench.standing == (last, None, None)
    assert bench.swapper.fleet.good[-3:] == (last - 2, last - 1, last)
