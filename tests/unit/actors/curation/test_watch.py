"""What the curator notes of its agents, with the real store: what happened, once, and after a restart as before."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.curation import curator as curator_module
from actors.curation.agents import AgentView
from actors.curation.watch import SAVE_SECONDS
from actors.messages import Candidate, Directive, Feedback, Serving, Step
from actors.store import Joined, Store
from actors.system.streams import POLICY_CANDIDATE, POLICY_SERVING
from tests.support.credited import attributed
from tests.unit.actors.curation.test_curator import Bench

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bench(tmp_path: Path, store_url: str) -> AsyncIterator[Bench]:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    made = Bench(store, tmp_path)
    await made.restart(groups_per_batch=0, production_per_batch=2)
    yield made
    await store.aclose()


def run(key: str, **fields: object):
    return attributed(key, steps=(Step(exchange_id=f"x-{key}", role="desk#1"),), **fields)


def agent(bench: Bench) -> AgentView:
    (view,) = bench.driver.actor.watch.agents.views()
    return view


async def save(bench: Bench) -> None:
    bench.now += SAVE_SECONDS
    await bench.driver.tick()


async def test_from_the_run_to_the_answer_everything_is_counted_by_agent(bench: Bench) -> None:
    await bench.credit(run("a"), run("n", outcome=None), run("t", trainable=False, why_not="temperature 0"))
    (order,) = await bench.credit(run("b"))
    view = agent(bench)
    assert (view.runs, view.reported, view.training, view.unreported) == (4, 3, 2, 1)
    answer = Candidate(
        id="v1", version=1, parent=0, path="", files=(), manifest="", batch_ids=(order.id,), created=bench.now + 30,
        no_gradient={"a": "zero_advantage"},
    )  # fmt: skip
    bench.now += 30
    await bench.driver.feed(POLICY_CANDIDATE, answer)
    view, watch = agent(bench), bench.driver.actor.watch
    assert (view.learned, view.reasons) == (1, {"temperature 0": 1, "zero_advantage": 1})
    assert (list(watch.seconds), watch.updated, watch.version, watch.asked) == ([30.0], bench.now, 1, 0.0)
    assert (len(watch.runs), len(watch.reported)) == (4, 2), "what may not be trained on makes no update"


async def test_a_late_outcome_makes_the_run_reported(bench: Bench) -> None:
    await bench.credit(run("p", outcome=None))
    said = Feedback(id="f", received=bench.now, trajectory_id="p", outcome=1.0)
    await bench.store.save([said, Joined(id="f", trajectory_id="p", outcome=1.0)])
    bench.now += 60.0
    await bench.driver.tick()
    assert (agent(bench).runs, agent(bench).reported) == (1, 1)
    assert list(bench.driver.actor.watch.reported) == [bench.now]


async def test_a_restart_forgets_neither_what_is_settled_nor_what_is_under_way(bench: Bench) -> None:
    await bench.credit(run("t", trainable=False, why_not="temperature 0"), run("n", outcome=None), run("a"))
    (order,) = await bench.credit(run("b"))
    await save(bench)
    before = agent(bench)
    await bench.restart()
    assert agent(bench) == before
    assert bench.driver.actor.watch.asked == order.created
    await bench.train(order, 1)
    await save(bench)
    await bench.restart()
    assert (agent(bench).learned, agent(bench).runs) == (2, 4)
    assert bench.driver.actor.watch.updated == bench.now - SAVE_SECONDS
    assert bench.driver.actor.watch.asked == 0.0


@pytest.mark.promise
async def test_a_start_after_an_error_counts_nothing_twice(bench: Bench) -> None:
    await bench.credit(run("t", trainable=False, why_not="temperature 0"), commit=False)
    await bench.driver.actor.start()
    await bench.credit(run("t", trainable=False, why_not="temperature 0"))
    assert (agent(bench).runs, agent(bench).dropped) == (1, {"temperature 0": 1})


async def test_it_is_saved_once_a_minute_and_only_when_something_changed(bench: Bench) -> None:
    await bench.credit(run("a"))
    await bench.driver.tick()
    watch = bench.driver.actor.watch
    assert watch.to_save(bench.now + SAVE_SECONDS - 1) is None
    assert watch.to_save(bench.now + SAVE_SECONDS) is None, "nothing is settled, nothing came"
    await bench.credit(run("t", trainable=False, why_not="temperature 0"))
    assert watch.to_save(bench.now + 2 * SAVE_SECONDS) is not None


async def test_orders_that_nobody_answers_are_counted_and_the_first_is_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curator_module, "ORDER_ATTEMPTS", 1)
    await bench.restart(order_seconds=10.0)
    (order,) = await bench.credit(run("a"), run("b"))
    await bench.credit(run("c"), run("d"))
    bench.now += 10
    (second,) = await bench.driver.tick()
    assert (agent(bench).no_gradient, agent(bench).training) == ({"given up": 2}, 2)
    assert second.created > order.created == bench.driver.actor.watch.asked


async def test_skipped_orders_are_counted_from_the_last_update_on_and_after_a_restart(bench: Bench) -> None:
    for key in "abc":
        (order,) = await bench.credit(run(key), run(f"{key}2"))
        bench.now += 10
        skipped = Candidate(
            id=f"s-{key}", version=0, parent=0, path="", files=(), manifest="", batch_ids=(order.id,),
            created=bench.now, answer="skipped", no_gradient=dict.fromkeys(order.trajectories, "zero_advantage"),
        )  # fmt: skip
        await bench.driver.feed(POLICY_CANDIDATE, skipped)
    await save(bench)
    await bench.restart()
    watch = bench.driver.actor.watch
    assert (watch.skipped_orders, watch.skipped, watch.skipped_since) == (3, {"zero_advantage": 6}, 110.0)
    (order,) = await bench.credit(run("d"), run("d2"))
    await bench.train(order, 1)
    assert (watch.skipped_orders, watch.skipped) == (0, {})


async def test_a_freeze_is_known_with_time_and_reason_after_a_restart_and_ends_with_the_thaw(bench: Bench) -> None:
    for number, kind in enumerate(("freeze", "thaw", "freeze", "freeze")):
        said = Directive(id=f"d{number}", kind=kind, reason=f"why {number}", origin="test", created=float(number))
        await bench.store.save([said])
    await bench.restart()
    watch = bench.driver.actor.watch
    assert (watch.frozen_since, watch.frozen_reason, watch.thawed) == (2.0, "why 2", 1.0)
    await bench.direct("thaw")
    assert (watch.frozen_since, watch.thawed) == (0.0, bench.now)


async def test_a_swap_is_noted_and_a_start_is_none(bench: Bench) -> None:
    def serving(since: float, result: str) -> Serving:
        return Serving(
            id=f"s{since}", engine="serving", version=1, previous=0, path="", result=result, since=since
        )  # fmt: skip

    await bench.driver.feed(POLICY_SERVING, serving(50.0, "swapped"), serving(60.0, "started"))
    assert bench.driver.actor.watch.swapped == 50.0


async def test_what_cannot_be_read_is_begun_anew(bench: Bench) -> None:
    await bench.store.state_put("curator/watch", b"of another release")
    await bench.restart()
    assert bench.driver.actor.watch.agents.views() == []
