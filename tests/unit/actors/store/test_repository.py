"""What actors, gate and dashboard ask the store."""

import random
import threading
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.kinds.holdout import held_out
from actors.messages import BatchOrder, Candidate, Exchange, Feedback, Hints, Serving, Step, Trajectory, Verdict
from actors.store import Joined, Store, StoreUnavailable, runs
from actors.store import settings as waits
from actors.store.archive import ask
from actors.store.integrity import check
from actors.store.stories import history, numbers, order_of, why
from tests.support.credited import attributed
from tests.support.full_disk import full_disk
from tests.support.patience import within
from tests.support.traffic import exchange, said_of

pytestmark = pytest.mark.anyio


def candidate(version: int, *batches: str) -> Candidate:
    return Candidate(
        id=f"v{version}", version=version, parent=version - 1, path="", files=(), manifest="", batch_ids=batches,
        created=10.0 * version,
    )  # fmt: skip


def order(key: str, *members: str) -> BatchOrder:
    return BatchOrder(id=key, path="", sha256="", size=0, trajectories=members, created=1.0)


def serving(version: int, since: float, result: str = "swapped", engine: str = "serving") -> Serving:
    key = f"{engine}-{version}-{since}"
    return Serving(id=key, engine=engine, version=version, previous=0, path="", result=result, since=since)


def verdict(version: int, decision: str) -> Verdict:
    return Verdict(
        id=f"verdict-{version}", version=version, path="", manifest="", incumbent=0, decision=decision, reason="r",
        created=10.0 * version + 1,
    )  # fmt: skip


async def test_lineage_leads_from_a_trajectory_to_what_served_it(store: Store) -> None:
    await store.save([attributed("t"), order("b", "t"), candidate(1, "b"), candidate(2, "other")])
    await store.save([verdict(1, "promote"), serving(0, 5.0, "started"), serving(1, 20.0), serving(2, 30.0)])
    await store.save([serving(3, 40.0, "refused"), serving(4, 45.0, "rolled_back"), serving(0, 50.0)])
    batch = await store.ask(order_of, "b")
    (line,) = batch.versions
    assert (batch.batch_id, line.version, line.parent) == ("b", 1, 0)
    assert [judged.decision for judged in line.verdicts] == ["promote"]
    assert [(span.since, span.until) for span in line.served] == [(20.0, 30.0)]
    skipped = msgspec.structs.replace(candidate(1, "c"), id="skipped", answer="skipped")
    await store.save([order("c", "u"), skipped])
    assert (await store.ask(order_of, "c")).versions == (), "it made none"


async def test_a_long_line_is_told_to_the_first_and_the_newest_versions_as_among_all(store: Store) -> None:
    await store.save([candidate(1, "b")])
    await store.save([candidate(number) for number in range(2, 251)])
    await store.save([verdict(249, "reject"), *(serving(number, 10.0 * number + 5) for number in range(1, 251))])
    found = await store.ask(lambda connection: why(connection, 250))
    assert found is not None
    assert found.line == tuple(range(249, -1, -1))
    newest = await store.ask(lambda connection: history(connection, 3))
    everything = await store.ask(history)
    assert newest == everything[-3:]
    assert [span.until for span in newest[1].served] == [2505.0]
    assert [item.version for item in everything] == await store.ask(numbers)


async def test_recent_attributed_is_newest_first_and_by_source(store: Store) -> None:
    await store.save(
        [
            attributed("a", ended=1.0),
            attributed("b", ended=2.0, source="sandbox", group="g"),
            attributed("c", ended=3.0, tenant="other"),
            attributed("d", ended=4.0).trajectory,
        ]
    )
    assert [item.id for item in await store.recent_attributed()] == ["c", "b", "a"]
    assert [item.id for item in await store.recent_attributed(source="production", limit=1)] == ["c"]
    assert [row.id for row in await store.recent_outcomes(source="production")] == ["d", "c", "a"]


async def test_outcomes_of_a_version_are_the_newest_there_are_however_many_runs_have_none(store: Store) -> None:
    await store.save(
        [
            *(attributed(f"told {n}", ended=float(n), min_version=3, max_version=3) for n in range(4)),
            *(attributed(f"open {n}", ended=9.0, min_version=3, max_version=3, outcome=None) for n in range(20)),
            attributed("of both", ended=9.0, min_version=2, max_version=3),
            attributed("of another", ended=9.0, min_version=4, max_version=4),
            attributed("played", ended=9.0, min_version=3, max_version=3, source="sandbox"),
        ]
    )
    assert [row.id for row in await store.recent_outcomes(version=3, limit=2)] == ["told 3", "told 2"]
    assert [row.id for row in await store.recent_outcomes(version=3, since=1.0, until=3.0)] == ["told 2", "told 1"]
    said = Feedback(id="f", received=9.0, outcome=0.0)
    await store.save([said, Joined(id="f", trajectory_id="open 7", outcome=0.0)])
    assert [(row.id, row.outcome) for row in await store.recent_outcomes(version=3, limit=1)] == [("open 7", 0.0)]
    assert [row.id for row in await store.recent_outcomes(source="production", until=2.0)] == ["told 1", "told 0"]


@pytest.mark.promise
async def test_attribution_adds_to_a_trajectory_and_happens_once(store: Store) -> None:
    item = attributed("a")
    await store.save([item.trajectory])
    assert await store.trajectory("a") == item.trajectory
    await store.save([item])
    await store.save([attributed("a", cluster="changed")])
    assert await store.trajectory("a") == item
    assert (await store.counts())["trajectories_production"] == 1


async def test_what_unused_leaves_out_for_want_of_room_can_be_dropped_with_its_reason(store: Store) -> None:
    items = [attributed(f"t{number}", ended=float(number)) for number in range(6)]
    await store.save([*items, order("o", "t0")])
    assert (await store.latest("x", items[:2])).settled == {"t0"}
    assert await store.drop_unused(3, "pool full") == 2
    assert (await store.latest("x", items)).settled == {"t0", "t1", "t2"}
    assert [item.id for item in await store.unused((0.0, ""), 2)] == ["t3", "t4"]
    assert [item.id for item in await store.unused((4.0, "t4"), 2)] == ["t5"]
    assert (await store.counts())["dropped_pool_full"] == 2
    assert await store.drop_unused(3, "pool full") == 0


async def test_live_runs_come_with_their_engine_where_no_version_says_who_sampled_them(store: Store) -> None:
    runs = attributed("known", min_version=3), attributed("unknown", min_version=-1)
    await store.save([exchange("u", 0, id="x-unknown", engine="b"), *runs])
    found = {run.id: engine for run, engine in await store.closed_runs(["known", "unknown", "none"])}
    assert found == {"known": "", "unknown": "b"}


async def test_calls_that_an_engine_failed_are_found_by_engine_and_run(store: Store) -> None:
    def call(key: str, status: int, started: float, hints: Hints) -> Exchange:
        return Exchange(
            id=key, endpoint="/v1/chat/completions", engine="b", started=started, duration=1.0, status=status,
            request=b"{}", response=b"{}", hints=hints,
        )  # fmt: skip

    named = Hints(trajectory_id="run")
    await store.save(
        [
            call("early", 503, 1.0, named),
            call("one", 503, 10.0, named),
            call("again", 502, 11.0, named),
            call("nameless", 500, 12.0, Hints()),
            call("theirs", 422, 13.0, named),
        ]
    )
    assert await store.lost_runs(5.0) == {("b", "run"), ("b", "nameless")}
    assert await store.lost_runs(0.0, until=12.0) == {("b", "run")}


async def test_a_call_is_told_by_its_records_id_and_not_by_the_engines(store: Store) -> None:
    await store.save([exchange("a", 0), exchange("a", 0, tenant="other"), exchange("b", 0, id="x1", response_id="")])
    await store.save([exchange("c", 0, id="x2", response_id=""), exchange("d", 0, response_id="r-default-a-0")])
    await store.save([exchange("d", 0, response_id="r-default-a-0")])
    assert (await store.counts())["exchanges"] == 5


async def test_a_full_disk_is_an_outage_and_nothing_of_the_transaction_stays(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 1000.0)  # its files are written by this process
    await store.open()
    await store.save([exchange("a", 0)])
    more = [exchange("b", number, request=b"x" * 100_000) for number in range(20)]
    with full_disk(300_000), pytest.raises(StoreUnavailable, match=str(tmp_path)):
        await store.save(more)
    assert (await store.counts())["exchanges"] == 1
    await store.save(more)
    assert (await store.counts())["exchanges"] == 21
    await store.aclose()
    assert ask(f"sqlite:///{tmp_path}/evolved.db", lambda connection: check(connection, None, str)).findings == ()


async def test_writers_that_wait_for_another_keep_no_reader_waiting(store: Store) -> None:
    hold = threading.Event()
    async with anyio.create_task_group() as group:
        for _ in range(2 * waits.CONNECTIONS):
            group.start_soon(store.change, lambda connection: hold.wait(within()))
        await anyio.wait_all_tasks_blocked()
        try:
            with anyio.fail_after(within() / 4):
                assert await store.recent_attributed() == []
        finally:
            hold.set()


async def test_an_id_longer_than_an_index_takes_is_found_all_the_same(store: Store) -> None:
    """The likes of 20,000 characters, which nobody wants and somebody sends."""
    noise = random.Random(0)
    long, other = ("".join(chr(noise.randrange(0x4E00, 0x9FFF)) for _ in range(20_000)) for _ in range(2))
    calls = [
        exchange("a", 0, tenant="acme", response_id=long, hints=Hints(custom_id=long, trajectory_id=long)),
        exchange("b", 0, tenant="acme", response_id=other, hints=Hints(custom_id=long[:-1], trajectory_id=other)),
    ]
    await store.save(calls)
    early = Feedback(id="early", received=1.0, tenant="acme", response_id=long, outcome=1.0)
    await store.save([early])
    for call in calls:
        step = Step(exchange_id=call.id, response_id=call.response_id)
        await store.save([Trajectory(id=f"t-{call.id}", tenant="acme", steps=(step,), started=1.0, ended=2.0)])
    assert await said_of(store, "t-x-acme-a-0") == [early]
    for said in ({"response_id": long}, {"custom_id": long}, {"trajectory_id": long}):
        found = Feedback(id="f", received=9_999_999_999.0, tenant="acme", **said)  # type: ignore[arg-type]
        assert await store.ask(lambda connection: runs.find_trajectory(connection, found)) == "t-x-acme-a-0"
    assert (await store.exchanges(["x-acme-a-0"])) == calls[:1]


async def test_the_exam_is_fair_to_parties_however_loud_one_is(store: Store) -> None:
    names = [name for name in (f"e{number}" for number in range(3000)) if held_out(name)]
    assert len(names) > 500
    runs = [
        attributed(name, outcome=1.0 if number % 2 else None, ended=float(number), tenant="ab"[number < 40], caller="k")
        for number, name in enumerate(names[:500])
    ]
    await store.save([attributed("taught", outcome=1.0, ended=999.0), *runs])
    found = await store.exam(reported=True, limit=60)
    tenants = [item.trajectory.tenant for item in found]
    assert (tenants.count("a"), tenants.count("b")) == (40, 20), "b has twenty with an outcome, all old"
    assert [item.trajectory.ended for item in found] == sorted((item.trajectory.ended for item in found), reverse=True)
    assert len(await store.exam(reported=False, limit=600)) == 500


async def test_an_id_with_nul_is_taken_for_no_other(store: Store) -> None:
    await store.save([attributed("u"), attributed("v")])
    assert [run.id for run, _ in await store.closed_runs(["u\0x", "v"])] == ["v"]
