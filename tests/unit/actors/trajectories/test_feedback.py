"""Feedback finds its trajectory by whatever it names, whichever comes first, however late, and across restarts."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors.credit.attributor import Attributor, AttributorSettings
from actors.messages import Attributed, Attribution, Exchange, Feedback, Hints, Message, StepLabel, Trajectory
from actors.store import Store
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK, TRAJECTORY_CLOSED
from actors.trajectories.assembler import Assembler, AssemblerSettings
from tests.support.driving import Driver
from tests.support.traffic import exchange, without_tools

pytestmark = pytest.mark.anyio

DAY = 86_400.0


class Good:
    """Every step is good."""

    name, rubric = "good", "good-1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        return Attribution(labels=(StepLabel("GOOD"),) * len(trajectory.steps), judge=self.name, rubric=self.rubric)


class Bench:
    """Assembler and attributor on one store, and a clock to turn."""

    def __init__(self, store: Store) -> None:
        self.store, self.now = store, 5000.0
        self._start()

    def _start(self) -> None:
        rules = AssemblerSettings(idle_seconds=60.0)
        self.assembler = Assembler(rules, store=self.store, clock=lambda: self.now)
        self._assembling = Driver(self.assembler, self.store)
        self._attributing = Driver(Attributor(AttributorSettings(), judge=Good(), evidence=self.store), self.store)

    async def restart(self) -> None:
        self._start()
        await self.assembler.start()

    async def see(self, *messages: Message) -> None:
        for kind, subject in ((Exchange, TRAFFIC_EXCHANGE), (Feedback, TRAFFIC_FEEDBACK)):
            await self._assembling.feed(subject, *(m for m in messages if isinstance(m, kind)))

    async def close(self, after: float = 61.0) -> list[Trajectory]:
        self.now += after
        return [run for run in await self._assembling.tick() if isinstance(run, Trajectory)]

    async def attribute(self, run: Trajectory) -> list[str]:
        (found,) = await self._attributing.feed(TRAJECTORY_CLOSED, run)
        assert isinstance(found, Attributed)
        return [label.label for label in found.attribution.labels]

    async def outcome(self, run: Trajectory) -> float | None:
        found = await self.store.trajectory(run.id)
        assert found is not None
        return found.trajectory.outcome if isinstance(found, Attributed) else found.outcome


@pytest.fixture
async def bench(store_url: str) -> AsyncIterator[Bench]:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    made = Bench(store)
    await made.restart()
    yield made
    await store.aclose()


def calls(run: str = "a", count: int = 3) -> list[Exchange]:
    """Calls of one run that bear every kind of id that feedback may name."""
    return [
        exchange(run, number, hints=Hints(trajectory_id=f"t-{run}", custom_id=f"c-{run}-{number}"))
        for number in range(count)
    ]


BY_ID: dict[str, dict[str, Any]] = {
    "exchange": {"exchange_id": "x-default-a-2"},
    "response": {"response_id": "r-default-a-2"},
    "custom": {"custom_id": "c-a-2"},
    "trajectory": {"trajectory_id": "t-a"},
}
by_any_id = pytest.mark.parametrize("names", BY_ID.values(), ids=BY_ID)


def said(outcome: float | None = 1.0, *, key: str = "f", received: float = 6000.0, **fields: Any) -> Feedback:
    return Feedback(id=key, received=received, outcome=outcome, **fields)


def of_step(outcome: float, *, key: str = "f", **fields: Any) -> Feedback:
    return said(outcome, key=key, kind="step", final=False, **fields)


# -- which trajectory --


@by_any_id
async def test_feedback_after_the_calls_closes_the_trajectory(bench: Bench, names: dict[str, Any]) -> None:
    await bench.see(*calls(), said(**names))
    (run,) = await bench.close(1.0)
    assert (run.outcome, run.closed_by) == (1.0, "feedback")


@by_any_id
@pytest.mark.parametrize("restart", [False, True])
async def test_feedback_before_the_calls_waits_for_them(bench: Bench, names: dict[str, Any], restart: bool) -> None:
    await bench.see(said(**names))
    assert (await bench.store.counts())["feedback_waiting"] == 1
    bench.now += 3 * 3600.0
    if restart:
        await bench.restart()
    await bench.see(*calls())
    (run,) = await bench.close(1.0)
    assert (run.outcome, run.closed_by) == (1.0, "feedback")
    assert (await bench.store.counts())["feedback_waiting"] == 0


@by_any_id
@pytest.mark.parametrize("restart", [False, True])
async def test_feedback_hours_after_the_end_finds_its_trajectory(
    bench: Bench, names: dict[str, Any], restart: bool
) -> None:
    await bench.see(*calls())
    (run,) = await bench.close()
    bench.now += 7 * 3600.0
    if restart:
        await bench.restart()
    await bench.see(said(0.0, received=bench.now, **names))
    assert await bench.outcome(run) == 0.0
    assert (await bench.store.counts())["feedback_waiting"] == 0
    assert bench.assembler.counts["late_feedback"] == 1


@by_any_id
async def test_feedback_that_memory_let_go_of_still_joins_when_its_calls_come(
    bench: Bench, names: dict[str, Any]
) -> None:
    await bench.see(said(**names))
    bench.now += 3 * DAY
    await bench.restart()
    await bench.see(*calls())
    (run,) = await bench.close()
    assert await bench.outcome(run) == 1.0
    assert [one.id for one in await bench.store.feedback_for(run.id)] == ["f"]


async def test_of_what_memory_let_go_of_the_last_final_outcome_counts(bench: Bench) -> None:
    early = said(0.25, key="1", received=1.0, response_id="r-default-a-2")
    late = said(0.75, key="2", received=2.0, response_id="r-default-a-2")
    rating = said(0.5, key="3", received=3.0, response_id="r-default-a-2", kind="rating", final=False)
    await bench.see(early, late, rating)
    bench.now += 3 * DAY
    await bench.restart()
    await bench.see(*calls())
    (run,) = await bench.close()
    assert await bench.outcome(run) == 0.75
    assert len(await bench.store.feedback_for(run.id)) == 3


async def test_another_tenants_ids_mean_nothing(bench: Bench) -> None:
    await bench.see(*calls(), *(said(key=kind, tenant="other", **names) for kind, names in BY_ID.items()))
    bench.now += 3 * DAY
    await bench.restart()
    (run,) = await bench.close()
    assert run.outcome is None
    assert (await bench.store.counts())["feedback_waiting"] == 4


async def test_the_same_feedback_again_changes_nothing(bench: Bench) -> None:
    await bench.see(*calls())
    (run,) = await bench.close()
    for _ in range(3):
        await bench.see(said(1.0, **BY_ID["custom"]))
    await bench.store.save([said(1.0, **BY_ID["custom"])])
    assert [one.id for one in await bench.store.feedback_for(run.id)] == ["f"]
    assert (await bench.store.counts())["feedback_waiting"] == 0


async def test_an_id_that_a_caller_uses_again_means_the_newest_trajectory_that_had_begun(bench: Bench) -> None:
    for run, started in (("a", 100.0), ("b", 5000.0), ("c", 9000.0)):
        await bench.see(exchange(run, 0, started=started, hints=Hints(custom_id="same")))
    runs = {run.goal: run.id for run in await bench.close()}
    assert await bench.store.find_trajectory(said(custom_id="same", received=6000.0)) == runs["goal of b"]
    assert await bench.store.find_trajectory(said(custom_id="same", received=50.0)) == runs["goal of c"]


async def test_who_names_the_trajectory_means_its_main_line_and_not_the_calls_beside_it(bench: Bench) -> None:
    title = exchange(
        "a", 2, request=without_tools("a", 2), id="x-title", response_id="r-title", started=500.0,
        hints=Hints(trajectory_id="t-a"),
    )  # fmt: skip
    await bench.see(*calls(), title)
    (run,) = await bench.close()
    assert len(run.steps) == 3
    for restart in (False, True):
        if restart:
            await bench.restart()
        key = f"restarted {restart}"
        await bench.see(said(key=key, received=bench.now, trajectory_id="t-a"))
        assert key in [one.id for one in await bench.store.feedback_for(run.id)]


# -- steps --

BY_STEP: dict[str, dict[str, Any]] = {
    "exchange": {"exchange_id": "x-default-a-1"},
    "response": {"response_id": "r-default-a-1"},
    "custom": {"custom_id": "c-a-1"},
    "number in trajectory": {"trajectory_id": "t-a", "step": 1},
    "number by another call": {"custom_id": "c-a-0", "step": 1},
}
by_any_step = pytest.mark.parametrize("names", BY_STEP.values(), ids=BY_STEP)


@by_any_step
@pytest.mark.parametrize("when", ["before the calls", "before the end", "after the end"])
async def test_a_step_that_was_called_bad_is_bad_whatever_the_judge_says(
    bench: Bench, names: dict[str, Any], when: str
) -> None:
    report = of_step(0.0, **names)
    if when == "before the calls":
        await bench.see(report)
    await bench.see(*calls())
    if when == "before the end":
        await bench.see(report)
    (run,) = await bench.close()
    if when == "after the end":
        await bench.see(report)
        await bench.restart()
    assert run.outcome is None
    assert await bench.attribute(run) == ["GOOD", "BAD", "GOOD"]
    assert (await bench.store.counts())["feedback_late"] == 0


async def test_what_is_said_of_a_step_closes_nothing(bench: Bench) -> None:
    await bench.see(*calls(), of_step(1.0, **BY_STEP["response"]))
    assert await bench.close(5.0) == []


async def test_a_report_on_a_step_after_its_credit_is_late_and_kept(bench: Bench) -> None:
    await bench.see(*calls())
    (run,) = await bench.close()
    assert await bench.attribute(run) == ["GOOD"] * 3
    await bench.see(of_step(0.0, **BY_STEP["custom"]))
    counts = await bench.store.counts()
    assert (counts["feedback_late"], counts["feedback_waiting"]) == (1, 0)
    found = await bench.store.trajectory(run.id)
    assert isinstance(found, Attributed)
    assert [label.label for label in found.attribution.labels] == ["GOOD"] * 3
    assert [number for number, _ in (await bench.store.step_feedback([run]))[run.id]] == [1]


async def test_a_step_that_is_not_there_is_nobodys(bench: Bench) -> None:
    await bench.see(*calls(), of_step(0.0, trajectory_id="t-a", step=99))
    (run,) = await bench.close()
    assert await bench.attribute(run) == ["GOOD"] * 3
