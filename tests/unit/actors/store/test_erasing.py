"""What is forgotten is gone from every file of the database, stays away, and leaves a trail of who trained on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from actors.messages import BatchOrder, Candidate, Experience, Feedback, Hints, Serving, Step, Trajectory, encode
from actors.store import Joined, Store
from actors.store.erasing import Scope, Selector, Touched
from actors.store.tables import Base
from actors.system.outgoing import outgoing
from actors.system.streams import (
    EXPERIENCE_LESSON,
    TRAFFIC_EXCHANGE,
    TRAJECTORY_ATTRIBUTED,
    TRAJECTORY_CLOSED,
    WORK_TRAIN,
)
from tests.support.credited import attributed
from tests.support.traffic import exchange, feedback, said_of, unjoined

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
SECRET = b"the bank account of Ms Hyde"
DAY = 86_400.0


class Kept:
    """A store with three runs of two tenants, whose clock can be turned."""

    def __init__(self, url: str) -> None:
        self.url, self.now = url, 5_000.0
        self.store = Store(url, clock=lambda: self.now)

    async def forget(self, selector: Selector) -> Scope:
        await self.store.tombstone(selector, Scope(trajectories=selector.trajectories))
        scope = await self.store.find(selector)
        await self.store.tombstone(selector, scope)
        await self.store.erase(scope)
        return scope

    async def run(self, key: str, *, tenant: str = "acme", caller: str = "", **fields) -> Trajectory:
        """Two calls, feedback, and the closed run that holds them."""
        calls = [
            exchange(key, number, tenant=tenant, caller=caller, request=b'{"say": "%b"}' % SECRET)
            for number in range(2)
        ]
        steps = tuple(Step(exchange_id=call.id, response_id=call.response_id, text=SECRET.decode()) for call in calls)
        run = attributed(key, tenant=tenant, steps=steps, goal=SECRET.decode(), **fields)
        said = feedback(key, 1, tenant=tenant, text=SECRET.decode())
        await self.store.save([*calls, run, said, Joined(id=said.id, trajectory_id=key, outcome=1.0)])
        return run.trajectory


@pytest.fixture
async def kept(store_url: str) -> AsyncIterator[Kept]:
    made = Kept(store_url)
    await made.store.open()
    yield made
    await made.store.aclose()


async def test_a_trajectory_goes_with_its_calls_and_what_was_said_of_it(kept: Kept) -> None:
    run = await kept.run("a")
    await kept.run("b")
    await kept.store.save([Feedback(id="early", received=1.0, tenant="acme", exchange_id="x-acme-a-0", text="Hyde")])
    scope = await kept.forget(Selector(trajectories=("a",)))
    assert (scope.trajectories, scope.exchanges, sorted(scope.feedback)) == (
        ("a",), ("x-acme-a-0", "x-acme-a-1"), ["early", "f-acme-a-1"],
    )  # fmt: skip
    assert await kept.store.trajectory("a") is None
    assert await said_of(kept.store, "a") == []
    assert await kept.store.trajectory("b") is not None
    assert len(await kept.store.exchanges(["x-acme-a-0", "x-acme-b-0"])) == 1
    keys = [f"{TRAJECTORY_CLOSED}:a", f"{TRAJECTORY_ATTRIBUTED}:a", f"{TRAFFIC_EXCHANGE}:x-acme-a-0"]
    for actor in ("curator", "never-heard-of"):
        assert await kept.store.processed(actor, [*keys, f"{TRAJECTORY_CLOSED}:b"]) == set(keys), "done for everybody"
    assert await kept.store.commit("attributor", keys[:1], [run], []) is None, "a batch that was in hand"
    assert await kept.store.trajectory("a") is None
    for said in ({"trajectory_id": "a"}, {"exchange_id": "x-acme-a-1"}):
        late = Feedback(id=f"late {said}", received=9_999.0, tenant="acme", **said)
        assert await kept.store.commit("assembler", [f"t:{late.id}"], [late], []) == []
    assert await unjoined(kept.store) == set()


async def test_not_a_byte_of_it_is_left_in_the_files_of_sqlite(tmp_path: Path) -> None:
    """Nor of what was replaced before: a body without its labels, an output that has been sent."""
    kept = Kept(f"sqlite:///{tmp_path}/evolved.db")
    await kept.store.open()

    def kept_bytes() -> bytes:
        return b"".join(file.read_bytes() for file in sorted(tmp_path.glob("evolved.db*")))

    run = msgspec.structs.replace(attributed("a").trajectory, tenant="acme", goal=SECRET.decode() * 500)
    sent = outgoing(TRAJECTORY_CLOSED, run)
    await kept.store.commit("assembler", [], [run], [sent])
    await kept.store.published("assembler", [sent.id])
    await kept.store.save([msgspec.structs.replace(attributed("a"), trajectory=run)])
    await kept.run("b")
    assert SECRET in kept_bytes()
    await kept.forget(Selector(tenant="acme"))
    assert await kept.store.fold()
    assert SECRET not in kept_bytes()
    await kept.store.aclose()


async def test_a_tenant_goes_without_its_neighbours(kept: Kept) -> None:
    await kept.run("a")
    await kept.run("z", tenant="zeta")
    open_call = exchange("open", 0, tenant="acme")
    await kept.store.save([open_call, Feedback(id="f", received=1.0, tenant="acme", response_id="unheard-of")])
    said = {tenant: (tenant, SECRET) for tenant in ("acme", "zeta")}
    await kept.store.keep_judgements(said, {})
    scope = await kept.forget(Selector(tenant="acme"))
    assert set(await kept.store.judgements(["acme", "zeta"])) == {"zeta"}
    assert open_call.id in scope.exchanges
    assert "f" in scope.feedback
    assert await kept.store.open_exchanges() == []
    assert await unjoined(kept.store) == set()
    assert await kept.store.trajectory("z") is not None


async def test_an_agent_key_takes_whole_trajectories_that_it_had_a_call_in(kept: Kept) -> None:
    await kept.run("a", caller="4f9c")
    await kept.run("b", caller="other")
    open_call = exchange("open", 0, tenant="acme", caller="4f9c", hints=Hints(trajectory_id="mine", custom_id="4711"))
    said = [{"custom_id": "4711"}, {"trajectory_id": "mine"}, {"response_id": open_call.response_id}]
    said += [{"custom_id": "4711", "tenant": "zeta"}, {"custom_id": "4712"}]
    waiting = [Feedback(id=f"f{n}", received=1.0, **{"tenant": "acme", **one}) for n, one in enumerate(said)]
    await kept.store.save([open_call, *waiting])
    scope = await kept.forget(Selector(caller="4f9c"))
    assert scope.trajectories == ("a",)
    assert await kept.store.trajectory("b") is not None
    assert await unjoined(kept.store) == {"f3", "f4"}, "what named an open run goes too"


async def test_continuations_go_too_to_any_depth(kept: Kept) -> None:
    await kept.run("a")
    await kept.run("later", continues="a")
    await kept.run("last", continues="later")
    await kept.run("other")
    scope = await kept.forget(Selector(trajectories=("a",)))
    assert scope.trajectories == ("a", "last", "later")


async def test_versions_that_saw_it_are_listed_with_their_heirs_and_where_they_serve(kept: Kept) -> None:
    for key in ("a", "b", "c", "d"):
        await kept.run(key, continues="a" if key in "cd" else "")

    def order(key: str, *runs: str) -> BatchOrder:
        return BatchOrder(id=key, path=f"/b/{key}.batch", sha256="", size=0, trajectories=runs)

    def version(number: int, *batches: str, answer: str = "trained") -> Candidate:
        return Candidate(
            id=f"v{number} {answer}", version=number, parent=number - 1, path="", files=(), manifest="",
            batch_ids=batches, answer=answer,
        )  # fmt: skip

    serving = Serving(id="s", engine="one", version=3, previous=1, path="", result="swapped", since=9.0)
    await kept.store.save([order("o", "a", "b"), order("late", "c"), order("skipped", "d"), serving])
    # An answer to a skipped order names the version that stands, which saw nothing of it.
    await kept.store.save([version(1), version(1, "skipped", answer="skipped"), version(2, "o"), version(3)])
    scope = await kept.forget(Selector(trajectories=("a",)))
    assert scope.versions == (
        Touched(version=2, trajectories=1), Touched(version=3, trajectories=0, engines=("one",)),
    )  # fmt: skip
    assert (scope.batches, scope.unanswered) == (("late", "o", "skipped"), ("late",))
    assert scope.files == ("/b/late.batch", "/b/o.batch", "/b/skipped.batch")
    again = await kept.forget(Selector(trajectories=("a",)))
    assert again.versions == scope.versions, "found by what the order names"
    assert again.empty


async def test_what_an_actor_makes_of_forgotten_things_is_neither_written_nor_sent(kept: Kept) -> None:
    await kept.run("a")
    await kept.run("b")
    await kept.forget(Selector(trajectories=("a",)))
    step = Step(exchange_id="x-acme-a-0")
    other = Step(exchange_id="x-acme-b-0")
    made = [
        Trajectory(id="rebuilt", tenant="acme", steps=(step,), started=1.0, ended=2.0),
        Trajectory(id="sound", tenant="acme", steps=(other,), started=1.0, ended=2.0),
        Experience(id="drawn", when_to_use="w", content="c", sources=("a", "b")),
        Experience(id="given-up", when_to_use="w", content="c", sources=("a", "b"), state="retired"),
        BatchOrder(id="order", path="", sha256="", size=0, trajectories=("b", "a")),
    ]
    subjects = [TRAJECTORY_CLOSED, TRAJECTORY_CLOSED, EXPERIENCE_LESSON, EXPERIENCE_LESSON, WORK_TRAIN]
    sent = [outgoing(subject, record) for subject, record in zip(subjects, made, strict=True)]
    written = await kept.store.commit("actor", [], made, sent)
    assert await kept.store.unpublished("actor", 10) == written, "the others are not published at once either"
    assert [item.id.split(":")[1] for item in written or ()] == ["sound", "given-up"]
    assert await kept.store.trajectory("rebuilt") is None
    assert [lesson.id for lesson in await kept.store.experiences()] == ["given-up"]
    assert await kept.store.newest(BatchOrder) == []
    assert (await kept.store.counts())["forgotten_refused"] == 3
    # What was refused of traffic is gone for whoever else has it in hand; a lesson may be drawn again from others.
    assert await kept.store.tombstoned(["rebuilt", "drawn", "order"]) == {"rebuilt"}


async def test_calls_of_a_forgotten_tenant_that_come_late_stay_out_and_later_ones_come_in(kept: Kept) -> None:
    await kept.run("a")
    await kept.forget(Selector(tenant="acme", caller="4f9c"))
    spooled = exchange("spooled", 0, tenant="acme", started=kept.now - 1)
    by_key = exchange("spooled", 0, tenant="zeta", caller="4f9c", started=kept.now - 1)
    later = exchange("later", 0, tenant="acme", started=kept.now + 1)
    assert await kept.store.commit("assembler", ["t:1"], [spooled, by_key, later], []) == []
    assert [call.id for call in await kept.store.open_exchanges()] == [later.id]


async def test_copies_that_wait_to_be_sent_or_were_parked_go_too(kept: Kept) -> None:
    run = await kept.run("a")
    other = msgspec.structs.replace(run, id="other", steps=())
    await kept.store.commit("attributor", [], [], [outgoing(TRAJECTORY_ATTRIBUTED, item) for item in (run, other)])
    for item in (run, other):
        await kept.store.park("x", f"{TRAJECTORY_CLOSED}:{item.id}", TRAJECTORY_CLOSED, encode(item), "bad")
    await kept.store.park("x", "s:garbage", "s", b"\xff", "no message")
    await kept.forget(Selector(trajectories=("a",)))
    assert [item.id for item in await kept.store.unpublished("attributor", 9)] == [f"{TRAJECTORY_ATTRIBUTED}:other"]
    left = {letter["input_id"] for letter in await kept.store.dead_letters()}
    assert left == {f"{TRAJECTORY_CLOSED}:other", "s:garbage"}


async def test_tombstones_live_as_long_as_the_marks_of_handled_records(kept: Kept) -> None:
    await kept.run("a")
    await kept.forget(Selector(trajectories=("a",)))
    kept.now += 30 * DAY
    await kept.store.prune(kept.now - 31 * DAY)
    assert await kept.store.tombstoned(["a"]) == {"a"}
    kept.now += 2 * DAY
    await kept.store.prune(kept.now - 31 * DAY)
    assert await kept.store.tombstoned(["a"]) == set()


async def test_large_tenants_are_found_and_erased_in_parts(kept: Kept) -> None:
    calls = [
        exchange(f"r{n}", 0, tenant="acme", caller="k", hints=Hints(custom_id=str(n)), started=1.0) for n in range(1201)
    ]
    await kept.store.save(calls)
    scope = await kept.forget(Selector(caller="k"))
    assert len(scope.exchanges) == 1201
    assert (await kept.store.counts())["exchanges"] == 0


REACHED = {
    "uses", "exchanges", "feedback", "trajectories", "outbox",
    "dead_letters", "judgements", "tasks", "task_sources",
}  # fmt: skip
BY_LESSON = {"experiences", "embeddings"}
"""By what is done to lessons."""
ONLY_IDS_AND_FIGURES = {
    "batches", "candidates", "candidate_batches", "verdicts", "servings", "directives", "audit",
    "processed", "forgotten", "state", "leases",
}  # fmt: skip


def test_every_table_is_reached_or_holds_nothing_that_anybody_said() -> None:
    """A new table fails here: decide whether forgetting must reach it (`actors.store.erasing`), and list it."""
    assert {table.name for table in Base.metadata.sorted_tables} == REACHED | BY_LESSON | ONLY_IDS_AND_FIGURES
