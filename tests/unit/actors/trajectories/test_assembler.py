"""Traffic in, trajectories out, with the real store: nothing lost, nothing doubled, whatever dies or comes late."""

import random

import pytest
from structlog.testing import capture_logs

from actors.messages import Exchange, Feedback, Hints, Message
from actors.store.erasing import Selector, find
from actors.system.streams import TRAFFIC_EXCHANGE
from tests.support.fakes import Clock
from tests.support.traffic import exchange, feedback, said_of
from tests.unit.actors.trajectories.made import Bench, call, calls, names, result, run_of, says, title

pytestmark = pytest.mark.anyio
HOUR = 3600.0


async def test_feedback_closes_the_trajectory_and_the_store_has_all_of_it(bench: Bench) -> None:
    failed = exchange("a", 1, status=503, response_id="", id="x-failed")
    await bench.see(*run_of(), failed, exchange("b", 0, endpoint="/v1/embeddings"), feedback("a", 2, 1.0))
    (run,) = await bench.later(1.0)
    assert (names(run), run.outcome, run.closed_by) == ("a-0 a-1 a-2", 1.0, "feedback")
    assert await bench.store.trajectory(run.id) == run
    assert [said.id for said in await said_of(bench.store, run.id)] == ["f-default-a-2"]
    counts = await bench.store.counts()
    assert (counts["exchanges"], counts["exchanges_failed"], counts["exchanges_open"]) == (5, 1, 0)
    assert counts["trajectories_production"] == 1


async def test_a_late_exchange_opens_a_trajectory_that_continues_the_closed_one(bench: Bench) -> None:
    await bench.see(exchange("a", 0))
    (first,) = await bench.later()
    await bench.see(feedback("a", 2, 0.5))
    await bench.restart()
    await bench.see(exchange("a", 2), exchange("a", 1))
    (second,) = await bench.later()
    assert (second.continues, second.outcome, second.confidence) == (first.id, 0.5, 1.0)
    assert second.resumed_with == "", "results of tools are nobody's word"
    assert names(second) == "a-1 a-2"
    assert (await bench.store.trajectory(first.id)) == first
    counts = await bench.store.counts()
    assert (counts["exchanges_open"], counts["feedback_waiting"]) == (0, 0)


async def test_a_call_beside_the_main_line_is_kept_with_the_run_and_no_step_of_any(bench: Bench) -> None:
    await bench.see(*run_of(), title())
    (run,) = await bench.later()
    assert (names(run), run.trainable) == ("a-0 a-1 a-2", True)
    assert bench.assembler.counts["side_calls"] == 1
    await bench.restart()
    await bench.see(title())
    assert await bench.later() == [], "it opens no run of its own, and comes again in vain"
    assert (await bench.store.counts())["exchanges_open"] == 0
    scope = await bench.store.ask(find, Selector(trajectories=(run.id,)))
    assert title().id in scope.exchanges, "who forgets the run forgets it too"


async def test_many_users_behind_one_runs_id_are_told_and_a_planner_with_many_workers_is_not(bench: Bench) -> None:
    ours, told = Hints(trajectory_id="ours"), "look into the refund that customer number {} asked for in May"

    def begins(name: str, words: str, at: float, answer: dict) -> Exchange:
        return call(name, [{"role": "user", "content": words}], answer, at=at, hints=ours)

    with capture_logs() as logs:
        users = [begins(f"u{n}", f"where is my order number {n}, please?", 100.0 + n, says("here")) for n in range(300)]
        await bench.see(*users)
        await bench.later()
    assert bench.assembler.counts["mixed"] > 0
    assert {one["conversations"] > 8 for one in logs if one["event"] == "run_of_many_conversations"} == {True}
    await bench.restart()
    tasks = [told.format(number) for number in range(12)]
    asks = [calls("worker", f"c{n}", task=task)["tool_calls"][0] for n, task in enumerate(tasks)]
    plan = begins("plan", "clear up all refunds of May", 9000.0, says(None) | {"tool_calls": asks})
    await bench.see(plan, *(begins(f"w{n}", task, 9001.0 + n, says("done")) for n, task in enumerate(tasks)))
    assert len(await bench.later()) == 1
    assert bench.assembler.counts["mixed"] == 0


async def test_two_runs_that_go_the_same_way_stay_two_where_a_crash_brings_the_first_call_of_one_last(
    bench: Bench,
) -> None:
    asked = [{"role": "user", "content": "Cancel the order for Sam."}]

    def calls_of(name: str, at: float) -> tuple[Exchange, Exchange]:
        key = f"call_{name}7Qk1x93b"
        found = calls("find", key, name="Sam")
        then = [*asked, found, result(key, "Sam Miller")]
        return call(f"{name}1", asked, found, at=at), call(f"{name}2", then, says("done"), at=at + 1)

    def told(last: Exchange, outcome: float) -> Feedback:
        return Feedback(id=f"f-{last.id}", received=last.started + 1, response_id=last.response_id, outcome=outcome)

    (a1, a2), (b1, b2) = calls_of("a", 100.0), calls_of("b", 102.0)
    await bench.see(a1, a2, b2, told(a2, 0.0))
    runs = await bench.later(2.0)
    await bench.see(b1, told(b2, 1.0))
    runs += [*await bench.later(2.0), *await bench.later()]
    assert sorted((names(run), run.outcome) for run in runs) == [("a1 a2", 0.0), ("b1 b2", 1.0)]


async def test_links_are_counted_by_signal_and_confidence(bench: Bench) -> None:
    await bench.see(*run_of("s", 2, explicit=True), *run_of("p", call_ids=False), *run_of(), exchange("lost", 2))
    await bench.later()
    assert bench.assembler.links == {
        ("explicit", 1.0): 2, ("prefix", 0.8): 2, ("tool_call", 1.0): 2, ("none", 0.5): 1,
    }  # fmt: skip


@pytest.mark.parametrize("restart", [False, True])
async def test_calls_with_one_response_id_are_all_kept_and_a_record_that_comes_again_is_not(
    bench: Bench, restart: bool
) -> None:
    """An agent sends one `X-Request-Id` with every call of every run, and vLLM makes the response's id of it."""
    calls = [*run_of("a", response_id="chatcmpl-same"), *run_of("b", response_id="chatcmpl-same")]
    await bench.see(*calls[:4])
    if restart:
        await bench.restart()
    await bench.see(calls[1], *calls[3:], calls[5])
    assert sorted(len(run.steps) for run in await bench.later(1000.0)) == [3, 3]
    assert (await bench.store.counts())["exchanges"] == 6
    await bench.see(*calls)
    assert await bench.later(1000.0) == []


@pytest.mark.promise
@pytest.mark.parametrize("seed", range(5))
async def test_restarts_disorder_and_duplicates_count_every_call_once(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    runs = [f"run{number}" for number in range(6)]
    messages: list[Message] = [call for run in runs for call in run_of(run, 4)]
    messages += [feedback(run, 3, float(rng.randint(0, 1))) for run in runs]
    rng.shuffle(messages)
    for message in [*messages, *rng.sample(messages, 10)]:
        if rng.random() < 0.2:
            await bench.restart()
        if rng.random() < 0.1:
            await bench.see(message, commit=False)
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

    await bench.restart(serving=serving)
    silent = run_of(count=2, versions=())
    await bench.see(*silent, feedback("a", 1, 1.0))
    (run,) = await bench.later(1.0)
    assert (run.min_version, run.max_version) == (7, 7)
    assert asked == [(call.engine, call.started, call.started + call.duration) for call in silent]
    await bench.see(exchange("b", 0), feedback("b", 0, 1.0))
    (other,) = await bench.later(1.0)
    assert other.max_version != 7, "this one said it itself"


async def test_an_hour_that_is_skipped_or_comes_twice_closes_nothing_early_and_keeps_nothing_open(bench: Bench) -> None:
    clock, wall = Clock(50.0), 1_000_000.0
    await bench.restart(clock=clock)
    for jump in (0.0, HOUR, -2 * HOUR, HOUR, 0.0):
        wall += jump
        runs = (exchange(f"run{number}-{clock.now}", 0, started=wall) for number in range(10))
        await bench.driver.feed(TRAFFIC_EXCHANGE, *runs)
        assert await bench.driver.tick() == []
        clock.now += 10.0
    clock.now += 60.0
    assert len(await bench.later()) == 50
