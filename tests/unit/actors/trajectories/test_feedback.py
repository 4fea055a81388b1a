"""Feedback finds its trajectory by whatever it names, whichever comes first, however late, and across restarts."""

from typing import Any

import pytest

from actors.credit.attributor import Attributor
from actors.messages import Attributed, Attribution, Exchange, Feedback, Hints, OutcomeChanged, StepLabel, Trajectory
from actors.store.runs import find_trajectory
from actors.system.streams import TRAJECTORY_CLOSED
from tests.support.driving import Driver
from tests.support.traffic import exchange, said_of
from tests.unit.actors.trajectories.made import Bench, title

pytestmark = pytest.mark.anyio
HOUR, DAY = 3600.0, 86_400.0
CALLS = [exchange("a", n, hints=Hints(trajectory_id="t-a", custom_id=f"c-a-{n}")) for n in range(3)]
"""They bear every kind of id that feedback may name."""
BY_ID: dict[str, dict[str, Any]] = {
    "exchange": {"exchange_id": "x-default-a-2"},
    "response": {"response_id": "r-default-a-2"},
    "custom": {"custom_id": "c-a-2"},
    "trajectory": {"trajectory_id": "t-a"},
}
BY_STEP: dict[str, dict[str, Any]] = {
    "exchange": {"exchange_id": "x-default-a-1"},
    "response": {"response_id": "r-default-a-1"},
    "custom": {"custom_id": "c-a-1"},
    "number in trajectory": {"trajectory_id": "t-a", "step": 1},
    "number by another call": {"custom_id": "c-a-0", "step": 1},
}


class Good:
    """Every step is good."""

    name, rubric = "good", "good-1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        return Attribution(labels=(StepLabel("GOOD"),) * len(trajectory.steps), judge=self.name, rubric=self.rubric)


def said(outcome: float | None = 1.0, *, key: str = "f", received: float = 6000.0, **fields: Any) -> Feedback:
    return Feedback(id=key, received=received, outcome=outcome, **fields)


def of_step(**fields: Any) -> Feedback:
    return said(0.0, kind="step", final=False, **fields)


async def whose(bench: Bench, feedback: Feedback) -> str | None:
    """The closed run that `feedback` means."""
    return await bench.store.ask(lambda connection: find_trajectory(connection, feedback))


async def labels(bench: Bench, run: Trajectory) -> list[str]:
    attributor = Driver(Attributor(judge=Good(), store=bench.store), bench.store)
    (found,) = await attributor.feed(TRAJECTORY_CLOSED, run)
    assert isinstance(found, Attributed)
    return [label.label for label in found.attribution.labels]


@pytest.mark.parametrize("names", BY_ID.values(), ids=BY_ID)
@pytest.mark.parametrize(
    ("when", "restart"),
    [("after", False), ("before", False), ("before", True), ("late", False), ("late", True), ("forgotten", True)],
)
async def test_feedback_finds_its_run_whenever_it_comes(
    bench: Bench, names: dict[str, Any], when: str, restart: bool
) -> None:
    report = said(**names)
    if when in ("before", "forgotten"):
        await bench.see(report)
        assert (await bench.store.counts())["feedback_waiting"] == 1
        bench.now += 3 * (HOUR if when == "before" else DAY)
        if restart:
            await bench.restart()
    await bench.see(*CALLS, *([report] if when == "after" else []))
    (run,) = await bench.later(1.0 if when in ("before", "after") else 61.0)
    if when in ("before", "after"):
        assert (run.outcome, run.closed_by) == (1.0, "feedback")
    if when == "late":
        bench.now += 7 * HOUR
        if restart:
            await bench.restart()
        assert await bench.see(report) == [OutcomeChanged(id=run.id, revision=0)]
        assert await bench.later() == []
        assert bench.assembler.counts["late_feedback"] == 1
    assert await bench.outcome(run) == 1.0
    assert [one.id for one in await said_of(bench.store, run.id)] == ["f"]
    assert (await bench.store.counts())["feedback_waiting"] == 0


async def test_of_what_memory_let_go_of_the_last_final_outcome_counts(bench: Bench) -> None:
    early, late = said(0.25, key="1", received=1.0, **BY_ID["response"]), said(0.75, key="2", **BY_ID["response"])
    rating = said(0.5, key="3", received=7000.0, kind="rating", final=False, **BY_ID["response"])
    await bench.see(early, late, rating)
    bench.now += 3 * DAY
    await bench.restart()
    await bench.see(*CALLS)
    (run,) = await bench.later()
    assert await bench.outcome(run) == 0.75
    assert len(await said_of(bench.store, run.id)) == 3


async def test_another_tenants_ids_mean_nothing(bench: Bench) -> None:
    await bench.see(*CALLS, *(said(key=kind, tenant="other", **names) for kind, names in BY_ID.items()))
    bench.now += 3 * DAY
    await bench.restart()
    (run,) = await bench.later()
    assert run.outcome is None
    assert (await bench.store.counts())["feedback_waiting"] == 4


async def test_an_id_that_comes_again_means_the_newest_trajectory_that_had_begun(bench: Bench) -> None:
    for run, started in (("a", 100.0), ("b", 5000.0), ("c", 9000.0)):
        await bench.see(exchange(run, 0, started=started, hints=Hints(custom_id="same")))
    runs = {run.goal: run.id for run in await bench.later()}
    assert await whose(bench, said(custom_id="same", received=6000.0)) == runs["goal of b"]
    assert await whose(bench, said(custom_id="same", received=50.0)) == runs["goal of c"]


@pytest.mark.parametrize("closed", [False, True])
async def test_feedback_by_a_response_id_that_came_again_is_of_the_newest_call_before_it(
    bench: Bench, closed: bool
) -> None:
    old, new = (
        [exchange(run, n, response_id="chatcmpl-same", started=started + n) for n in range(2)]
        for run, started in (("a", 100.0), ("b", 500.0))
    )
    await bench.see(*old, *new)
    if closed:
        await bench.later(1000.0)
    await bench.see(
        said(1.0, key="f-b", received=900.0, response_id="chatcmpl-same"),
        said(0.0, key="f-a", received=300.0, response_id="chatcmpl-same"),
    )
    await bench.later()
    outcomes = {run.id: run.outcome for run in await bench.store.recent_closed(10)}
    for calls, outcome in ((old, 0.0), (new, 1.0)):
        assert outcomes[await whose(bench, said(exchange_id=calls[0].id))] == outcome


@pytest.mark.parametrize("when", ["before", "at once", "an hour later", "after a restart", "forgotten"])
async def test_who_rates_a_title_does_not_rate_the_work(bench: Bench, when: str) -> None:
    thumb = said(0.0, response_id="r-title")
    if when in ("before", "forgotten"):
        await bench.see(thumb)
    if when == "forgotten":
        bench.now += 3 * DAY
        await bench.restart()
    await bench.see(*CALLS, title(2, started=125.0), *([thumb] if when == "at once" else []))
    (run,) = await bench.later()
    if when in ("an hour later", "after a restart"):
        bench.now += HOUR
        if when == "after a restart":
            await bench.restart()
        assert await bench.see(thumb) == []
    assert await bench.outcome(run) is None
    assert [one.id for one in await said_of(bench.store, run.id)] == ["f"]
    assert await bench.see(said(1.0, key="g", received=9000.0, **BY_ID["response"])) == [
        OutcomeChanged(id=run.id, revision=0)
    ]


@pytest.mark.parametrize("closed", [False, True])
async def test_a_trajectory_id_that_several_keys_use_means_that_of_the_reports_own_key(
    bench: Bench, closed: bool
) -> None:
    hints = Hints(trajectory_id="nightly")
    await bench.see(exchange("a", 0, caller="key-a", hints=hints), exchange("b", 0, caller="key-b", hints=hints))
    runs = {run.caller: run for run in await bench.later()} if closed else {}
    await bench.see(
        said(1.0, key="f-grader", caller="key-g", trajectory_id="nightly"),
        said(0.5, key="f-b", caller="key-b", trajectory_id="nightly"),
    )
    runs = runs or {run.caller: run for run in await bench.later()}
    assert (await bench.outcome(runs["key-a"]), await bench.outcome(runs["key-b"])) == (None, 0.5)
    assert (await bench.store.counts())["feedback_waiting"] == 1, "nobody knows which of the two a grader means"


@pytest.mark.parametrize("late", [False, True])
async def test_a_report_that_names_two_runs_is_of_the_one_whose_call_it_names(bench: Bench, late: bool) -> None:
    named, other = exchange("a", 1), Hints(trajectory_id="t-b")
    report = said(exchange_id=named.id, trajectory_id="t-b")
    await bench.see(exchange("b", 0, hints=other), named)
    if late:
        runs = await bench.later()
        await bench.see(report)
    else:
        await bench.see(report)
        await bench.see(exchange("b", 1, hints=other))
        assert await bench.later(1.0) == [], "its beginning may be on its way"
        runs = await bench.later()
    assert {run.goal: await bench.outcome(run) for run in runs} == {"goal of a": 1.0, "goal of b": None}


async def test_a_report_of_another_key_finds_the_run_that_alone_has_the_id(bench: Bench) -> None:
    await bench.see(exchange("a", 0, caller="key-a", hints=Hints(trajectory_id="nightly")))
    await bench.see(said(1.0, caller="key-g", trajectory_id="nightly"))
    (run,) = await bench.later(1.0)
    assert run.outcome == 1.0


async def test_who_names_the_trajectory_means_its_main_line_and_not_the_calls_beside_it(bench: Bench) -> None:
    await bench.see(*CALLS, title(2, started=500.0, hints=Hints(trajectory_id="t-a")))
    (run,) = await bench.later()
    assert len(run.steps) == 3
    await bench.see(said(key="1", received=bench.now, trajectory_id="t-a"))
    await bench.restart()
    await bench.see(said(key="2", received=bench.now, trajectory_id="t-a"))
    assert {one.id for one in await said_of(bench.store, run.id)} == {"1", "2"}


@pytest.mark.parametrize("names", BY_STEP.values(), ids=BY_STEP)
@pytest.mark.parametrize("when", ["before the calls", "before the end", "after the end"])
async def test_a_step_that_was_called_bad_is_bad_whatever_the_judge_says(
    bench: Bench, names: dict[str, Any], when: str
) -> None:
    report: list[Feedback] = [of_step(**names)]
    messages: list[Exchange | Feedback] = [*CALLS, *report] if when == "before the end" else [*CALLS]
    if when == "before the calls":
        await bench.see(*report)
    await bench.see(*messages)
    assert await bench.later(5.0) == [], "what is said of a step closes nothing"
    (run,) = await bench.later()
    if when == "after the end":
        await bench.see(*report)
        await bench.restart()
    assert run.outcome is None
    assert await bench.outcome(run) is None
    assert await labels(bench, run) == ["GOOD", "BAD", "GOOD"]


async def test_a_report_on_a_step_after_its_credit_is_late_and_kept(bench: Bench) -> None:
    await bench.see(*CALLS)
    (run,) = await bench.later()
    assert await labels(bench, run) == ["GOOD"] * 3
    await bench.see(of_step(**BY_STEP["custom"]))
    assert (await bench.store.counts())["feedback_waiting"] == 0
    found = await bench.store.trajectory(run.id)
    assert isinstance(found, Attributed)
    assert [label.label for label in found.attribution.labels] == ["GOOD"] * 3
    assert [number for number, _ in (await bench.store.step_feedback([run]))[run.id]] == [1]


async def test_a_step_that_is_not_there_is_nobodys(bench: Bench) -> None:
    await bench.see(*CALLS, of_step(trajectory_id="t-a", step=99))
    (run,) = await bench.later()
    assert await labels(bench, run) == ["GOOD"] * 3


async def test_a_report_on_an_open_call_is_not_taken_by_an_older_one_with_the_same_id_that_closes_before(
    bench: Bench,
) -> None:
    old, new = (exchange(run, 0, response_id="again", started=at) for run, at in (("a", 100.0), ("b", 500.0)))
    await bench.see(old)
    bench.now += 30.0
    await bench.see(new, said(response_id="again", final=False))
    runs = [*await bench.later(31.0), *await bench.later()]
    assert {run.goal: await bench.outcome(run) for run in runs} == {"goal of a": None, "goal of b": 1.0}
