"""Traffic in, trajectories out, with the real store: nothing lost, nothing doubled, whatever dies or comes late."""

import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from actors.messages import Exchange, Feedback, Message, Trajectory
from actors.store import Store
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from actors.trajectories.assembler import Assembler, AssemblerSettings
from actors.trajectories.stitching import Limits
from tests.support.driving import Driver
from tests.support.traffic import exchange, feedback, without_tools

pytestmark = pytest.mark.anyio


class Bench:
    """An assembler on a store, and a clock to turn."""

    def __init__(self, store: Store) -> None:
        self.store, self.now = store, 5000.0
        self.driver = self.make()

    def make(self, **settings) -> Driver:
        limits = Limits(**settings)
        rules = AssemblerSettings(idle_seconds=60.0)
        return Driver(Assembler(rules, store=self.store, clock=lambda: self.now, limits=limits), self.store)

    async def restart(self, **settings) -> None:
        """As after kill -9: what was in memory is gone."""
        self.driver = self.make(**settings)
        await self.driver.actor.start()

    async def see(self, *messages: Message) -> list[Trajectory]:
        found: list[Message] = []
        for kind, subject in ((Exchange, TRAFFIC_EXCHANGE), (Feedback, TRAFFIC_FEEDBACK)):
            found += await self.driver.feed(subject, *(m for m in messages if isinstance(m, kind)))
        return found

    async def later(self, seconds: float) -> list[Trajectory]:
        self.now += seconds
        return await self.driver.tick()


@pytest.fixture
async def bench(store_url: str) -> AsyncIterator[Bench]:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    made = Bench(store)
    await made.driver.actor.start()
    yield made
    await store.aclose()


async def test_feedback_closes_the_trajectory_and_the_store_has_all_of_it(bench: Bench) -> None:
    await bench.see(*(exchange("a", number) for number in range(3)), feedback("a", 2, 1.0))
    (run,) = await bench.later(1.0)
    assert (len(run.steps), run.outcome, run.closed_by) == (3, 1.0, "feedback")
    assert await bench.store.trajectory(run.id) == run
    assert [said.id for said in await bench.store.feedback_for(run.id)] == ["f-default-a-2"]
    assert await bench.store.open_exchanges() == []
    counts = await bench.store.counts()
    assert (counts["exchanges"], counts["exchanges_open"], counts["trajectories_production"]) == (3, 0, 1)


@pytest.mark.promise
async def test_a_restart_in_mid_trajectory_loses_nothing(bench: Bench) -> None:
    await bench.see(exchange("a", 0), exchange("b", 0))
    await bench.restart()
    await bench.see(exchange("a", 1), feedback("a", 1, 0.0))
    await bench.restart()
    (run,) = await bench.later(1.0)
    assert (len(run.steps), run.outcome) == (2, 0.0)
    assert [open_.id for open_ in await bench.store.open_exchanges()] == ["x-default-b-0"]


async def test_redelivery_after_a_crash_before_the_commit_changes_nothing(bench: Bench) -> None:
    await bench.driver.feed(TRAFFIC_EXCHANGE, exchange("a", 0), commit=False)
    await bench.restart()
    await bench.see(exchange("a", 0), exchange("a", 1))
    await bench.see(exchange("a", 0))
    (run,) = await bench.later(60.0)
    assert len(run.steps) == 2


async def test_feedback_that_comes_before_its_exchange_waits_through_a_restart(bench: Bench) -> None:
    assert await bench.see(feedback("a", 1, 1.0)) == []
    await bench.restart()
    await bench.see(exchange("a", 1), exchange("a", 0))
    (run,) = await bench.later(1.0)
    assert (run.outcome, len(run.steps)) == (1.0, 2)


async def test_a_call_that_is_missing_is_waited_for_and_closes_with_the_others(bench: Bench) -> None:
    """After a crash the broker gives the new calls first, and those that were in work behind them."""
    await bench.see(exchange("a", 0), exchange("a", 2), exchange("a", 3), feedback("a", 3, 1.0))
    assert await bench.later(20.0) == []
    await bench.see(exchange("a", 1))
    (run,) = await bench.later(1.0)
    assert (len(run.steps), run.outcome, run.continues) == (4, 1.0, "")


async def test_a_call_that_never_comes_is_not_waited_for_for_ever(bench: Bench) -> None:
    await bench.see(exchange("a", 1), exchange("a", 2), feedback("a", 2, 1.0))
    assert await bench.later(59.0) == []
    (run,) = await bench.later(1.0)
    assert (len(run.steps), run.closed_by, run.confidence) == (2, "feedback", 0.5)


async def test_a_call_that_could_follow_either_of_two_is_not_waited_for(bench: Bench) -> None:
    first = exchange("a", 0, call_ids=False)
    twin = msgspec.structs.replace(first, id="x-twin", response_id="r-twin", started=101.0)
    await bench.see(first, twin, exchange("a", 1, call_ids=False), feedback("a", 1, 1.0))
    (run,) = await bench.later(1.0)
    assert (len(run.steps), run.outcome, run.confidence) == (1, 1.0, 0.5)


async def test_an_outcome_after_an_idle_close_reaches_the_row_and_nothing_is_published(bench: Bench) -> None:
    await bench.see(exchange("a", 0))
    (run,) = await bench.later(60.0)
    await bench.restart()
    assert await bench.see(feedback("a", 0, 1.0)) == []
    assert await bench.later(60.0) == []
    stored = await bench.store.trajectory(run.id)
    assert stored == msgspec.structs.replace(run, outcome=1.0)
    (row,) = await bench.store.recent_outcomes(source="production")
    assert row.outcome == 1.0
    assert bench.driver.actor.counts["late_feedback"] == 1


async def test_a_late_exchange_opens_a_trajectory_that_continues_the_closed_one(bench: Bench) -> None:
    await bench.see(exchange("a", 0))
    (first,) = await bench.later(60.0)
    await bench.see(feedback("a", 2, 0.5))
    await bench.restart()
    await bench.see(exchange("a", 2), exchange("a", 1))
    (second,) = await bench.later(60.0)
    assert (second.continues, second.outcome, second.confidence) == (first.id, 0.5, 1.0)
    assert second.resumed_with == "", "results of tools are nobody's word"
    assert [step.exchange_id for step in second.steps] == ["x-default-a-1", "x-default-a-2"]
    assert (await bench.store.trajectory(first.id)) == first
    counts = await bench.store.counts()
    assert (counts["exchanges_late"], counts["exchanges_open"], counts["feedback_waiting"]) == (2, 0, 0)
    assert counts["trajectories_production"] == 2


async def test_a_call_beside_the_main_line_is_stored_and_published_to_nobody(bench: Bench) -> None:
    title = exchange("a", 1, id="x-title", response_id="r-title", started=105.0, request=without_tools("a", 1))
    await bench.see(*(exchange("a", number) for number in range(3)), title)
    (run,) = await bench.later(60.0)
    assert [step.exchange_id for step in run.steps] == [f"x-default-a-{number}" for number in range(3)]
    assert run.trainable
    (side,) = [found for found in await bench.store.recent_closed(10) if found.id != run.id]
    assert (side.side_of, side.trainable, side.why_not) == (run.id, False, "side call")
    assert (await bench.store.counts())["exchanges_open"] == 0
    assert bench.driver.actor.counts["side_calls"] == 1


async def test_links_are_counted_by_signal_and_confidence(bench: Bench) -> None:
    named = [exchange("s", number, explicit=True) for number in range(2)]
    plain = [exchange("p", number, call_ids=False) for number in range(3)]
    await bench.see(*named, *plain, *(exchange("a", number) for number in range(3)), exchange("lost", 2))
    await bench.later(60.0)
    assert bench.driver.actor.links == {
        ("explicit", 1.0): 2, ("prefix", 0.8): 2, ("tool_call", 1.0): 2, ("none", 0.5): 1,
    }  # fmt: skip


async def test_late_feedback_on_one_step_leaves_the_outcome_open(bench: Bench) -> None:
    await bench.see(exchange("a", 0))
    (run,) = await bench.later(60.0)
    await bench.see(feedback("a", 0, 0.0, kind="step"))
    assert (await bench.store.trajectory(run.id)).outcome is None
    assert [said.kind for said in await bench.store.feedback_for(run.id)] == ["step"]


async def test_failed_calls_and_other_endpoints_are_kept_and_are_no_steps(bench: Bench) -> None:
    failed = exchange("a", 1, status=503, response_id="", id="x-failed")
    other = exchange("b", 0, endpoint="/v1/embeddings")
    await bench.see(exchange("a", 0), failed, other, exchange("a", 1))
    (run,) = await bench.later(60.0)
    assert [step.exchange_id for step in run.steps] == ["x-default-a-0", "x-default-a-1"]
    counts = await bench.store.counts()
    assert (counts["exchanges"], counts["exchanges_failed"], counts["exchanges_open"]) == (4, 1, 0)


@pytest.mark.parametrize("restart", [False, True])
async def test_calls_with_one_response_id_are_all_kept_and_a_record_that_comes_again_is_not(
    bench: Bench, restart: bool
) -> None:
    """An agent sends one `X-Request-Id` with every call of every run, and vLLM makes the response's id of it."""
    calls = [exchange(run, number, response_id="chatcmpl-same") for run in "ab" for number in range(3)]
    await bench.see(*calls[:4])
    if restart:
        await bench.restart()
    await bench.see(calls[1], *calls[3:], calls[5])
    runs = await bench.later(1000.0)
    assert sorted(len(run.steps) for run in runs) == [3, 3]
    assert (await bench.store.counts())["exchanges"] == 6
    await bench.see(*calls)
    assert await bench.later(1000.0) == []


@pytest.mark.parametrize("closed", [False, True])
async def test_feedback_by_a_response_id_that_came_again_is_of_the_newest_call_before_it(
    bench: Bench, closed: bool
) -> None:
    old = [exchange("a", n, response_id="chatcmpl-same", started=100.0 + n) for n in range(2)]
    new = [exchange("b", n, response_id="chatcmpl-same", started=500.0 + n) for n in range(2)]
    await bench.see(*old, *new)
    runs = {run.goal: run for run in await bench.later(1000.0)} if closed else {}
    first = Feedback(id="f-a", received=300.0, response_id="chatcmpl-same", outcome=0.0)
    second = Feedback(id="f-b", received=900.0, response_id="chatcmpl-same", outcome=1.0)
    told = await bench.see(second, first)
    runs |= {run.goal: run for run in [*told, *await bench.later(60.0)]}
    by_first_call = {run.steps[0].exchange_id: run.id for run in runs.values()}
    stored = {run.id: run.outcome for run in await bench.store.recent_closed(10)}
    assert stored[by_first_call[old[0].id]] == 0.0
    assert stored[by_first_call[new[0].id]] == 1.0


async def test_open_calls_are_bounded(bench: Bench) -> None:
    await bench.restart(max_turns=2)
    closed = await bench.see(*(exchange(run, 0) for run in "abcd"))
    assert [run.closed_by for run in closed] == ["limit", "limit"]
    assert bench.driver.actor.open_calls == 2
    assert bench.driver.actor.counts["closed_limit"] == 2


@pytest.mark.promise
@pytest.mark.parametrize("seed", range(5))
async def test_restarts_disorder_and_duplicates_count_every_call_once(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    runs = [f"run{number}" for number in range(6)]
    messages: list[Message] = [exchange(run, number) for run in runs for number in range(4)]
    messages += [feedback(run, 3, float(rng.randint(0, 1))) for run in runs]
    rng.shuffle(messages)
    for message in [*messages, *rng.sample(messages, 10)]:
        if rng.random() < 0.2:
            await bench.restart()
        if rng.random() < 0.1:
            subject = TRAFFIC_EXCHANGE if isinstance(message, Exchange) else TRAFFIC_FEEDBACK
            await bench.driver.feed(subject, message, commit=False)
            await bench.restart()
        await bench.see(message)
    closed = await bench.later(10.0)
    assert sorted(run.goal for run in closed) == [f"goal of {run}" for run in runs]
    assert [len(run.steps) for run in closed] == [4] * 6
    assert all(run.outcome is not None for run in closed)
    assert (await bench.store.counts())["exchanges_open"] == 0


async def test_where_the_engine_does_not_say_what_it_was_seen_to_serve_stands_in(bench: Bench) -> None:
    asked: list[tuple[str, float, float]] = []

    def serving(engine: str, started: float, ended: float) -> int:
        asked.append((engine, started, ended))
        return 7

    assembler = Assembler(AssemblerSettings(), store=bench.store, clock=lambda: bench.now, serving=serving)
    bench.driver = Driver(assembler, bench.store)
    await assembler.start()
    silent = [msgspec.structs.replace(exchange("a", number), versions=()) for number in range(2)]
    await bench.see(*silent, feedback("a", 1, 1.0))
    (run,) = await bench.later(1.0)
    assert (run.min_version, run.max_version) == (7, 7)
    assert asked == [(call.engine, call.started, call.started + call.duration) for call in silent]
    await bench.see(exchange("b", 0), feedback("b", 0, 1.0))
    (other,) = await bench.later(1.0)
    assert other.max_version != 7, "this one said it itself"
