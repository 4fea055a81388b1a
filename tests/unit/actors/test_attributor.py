"""The attributor: every closed trajectory comes out with a label a step, whatever the judge does."""

from collections.abc import Sequence

import anyio
import pytest

from actors.attributor import Attributor, AttributorSettings
from actors.clusters import cluster_of
from actors.messages import Attributed, Attribution, Feedback, StepLabel, Trajectory
from actors.system.actor import Received
from actors.system.errors import DependencyUnavailable
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from adapters.errors import JudgeUnavailable
from adapters.judges.rules import RulesJudge
from tests.support.travelling import plays

pytestmark = pytest.mark.anyio


class Failing:
    """A judge that fails the first `times` times, in the way that `how` says."""

    name, rubric = "failing", "failing-1"

    def __init__(self, times: int, how: Exception | int | None = None) -> None:
        self.times, self.how, self.asked = times, how, 0

    async def label(self, trajectory: Trajectory) -> Attribution:
        self.asked += 1
        labels = len(trajectory.steps)
        if self.asked <= self.times:
            if isinstance(self.how, Exception):
                raise self.how
            if self.how is None:
                await anyio.sleep_forever()
            labels = self.how
        return Attribution(labels=(StepLabel("GOOD"),) * labels, judge=self.name, rubric=self.rubric)


def received(count: int) -> list[Received]:
    runs = [played.trajectory for played in plays(count)]
    return [Received(run.id, TRAJECTORY_CLOSED, run) for run in runs]


async def attributed(judge: Failing | RulesJudge, count: int = 1, **settings: float) -> list[Attributed]:
    actor = Attributor(AttributorSettings(**settings), judge=judge)  # type: ignore[arg-type]
    result = await actor.handle(received(count))
    assert [output.subject for output in result.outputs] == [TRAJECTORY_ATTRIBUTED] * count
    assert [output.message for output in result.outputs] == list(result.records)
    return [record for record in result.records if isinstance(record, Attributed)]


async def test_a_batch_comes_out_labelled_in_order_under_the_ids_of_its_trajectories():
    batch = received(20)
    found = await attributed(RulesJudge(), 20)
    assert [message.id for message in found] == [item.message.id for item in batch]
    assert [message.trajectory for message in found] == [item.message for item in batch]
    assert all(len(message.attribution.labels) == len(message.trajectory.steps) for message in found)
    assert [message.cluster for message in found] == [cluster_of(message.trajectory.goal) for message in found]


@pytest.mark.parametrize("how", [ValueError("not what I asked for"), 99])
async def test_a_judge_that_recovers_is_heard(how: Exception | int):
    judge = Failing(2, how)
    found = await attributed(judge, attempts=3)
    assert judge.asked == 3
    assert {label.label for label in found[0].attribution.labels} == {"GOOD"}


@pytest.mark.parametrize("how", [ValueError("not what I asked for"), 99, None])
async def test_a_judge_that_keeps_failing_abstains_on_every_step(how: Exception | int | None):
    judge = Failing(99, how)
    found = await attributed(judge, attempts=2, timeout=0.01)
    assert judge.asked == 2
    labels = found[0].attribution.labels
    assert len(labels) == len(found[0].trajectory.steps)
    assert {(label.label, label.confidence) for label in labels} == {("ABSTAIN", 0.0)}


async def test_a_judge_that_is_away_is_waited_for():
    with pytest.raises(DependencyUnavailable, match="no answer"):
        await attributed(Failing(1, JudgeUnavailable("no answer")), 3)


async def test_no_more_judgements_are_under_way_than_allowed():
    class Counting(RulesJudge):
        now = most = 0

        async def label(self, trajectory: Trajectory) -> Attribution:
            self.now += 1
            self.most = max(self.most, self.now)
            await anyio.lowlevel.checkpoint()
            self.now -= 1
            return await super().label(trajectory)

    judge = Counting()
    await attributed(judge, 12, concurrency=3)
    assert judge.most == 3


class Said:
    """Feedback on steps, more of it at every question."""

    def __init__(self, *rounds: list[tuple[int, Feedback]]) -> None:
        self.rounds, self.asked = rounds, 0

    async def step_feedback(self, runs: Sequence[Trajectory]) -> dict[str, list[tuple[int, Feedback]]]:
        self.asked += 1
        return {run.id: self.rounds[min(self.asked, len(self.rounds)) - 1] for run in runs}


def on_step(number: int, outcome: float, text: str = "") -> tuple[int, Feedback]:
    return number, Feedback(id=f"f{number}", received=1.0, kind="step", outcome=outcome, text=text)


async def with_evidence(judge: Failing, said: Said) -> tuple[Attribution, Attributor]:
    actor = Attributor(AttributorSettings(attempts=1), judge=judge, evidence=said)
    (record,) = (await actor.handle(received(1))).records
    assert isinstance(record, Attributed)
    return record.attribution, actor


async def test_what_somebody_reported_of_a_step_outranks_the_judge():
    said = Said([on_step(0, 1.0), on_step(0, 0.0, "wrong day"), on_step(1, 0.75)])
    attribution, actor = await with_evidence(Failing(0), said)
    assert attribution.labels[:2] == (StepLabel("BAD", 1.0, "feedback: wrong day"), StepLabel("GOOD", 0.5, "feedback"))
    assert {label for label in attribution.labels[2:]} == {StepLabel("GOOD")}
    assert (attribution.judge, actor.counts["told_steps"]) == ("failing", 2)


async def test_who_says_neither_good_nor_bad_is_not_overruled_by_the_judge():
    attribution, _ = await with_evidence(Failing(0), Said([on_step(0, 0.5)]))
    assert attribution.labels[0] == StepLabel("ABSTAIN", 0.0, "feedback")


async def test_a_report_counts_where_the_judge_fails():
    attribution, _ = await with_evidence(Failing(9, 99), Said([on_step(0, 0.0)]))
    assert [label.label for label in attribution.labels[:2]] == ["BAD", "ABSTAIN"]


async def test_what_is_said_while_the_judge_thinks_still_counts():
    attribution, _ = await with_evidence(Failing(0), Said([], [on_step(0, 0.0)]))
    assert attribution.labels[0].label == "BAD"


async def test_no_judge_is_asked_where_every_step_has_been_reported_on():
    judge, steps = Failing(0), len(next(iter(plays(1))).trajectory.steps)
    attribution, _ = await with_evidence(judge, Said([on_step(number, 0.0) for number in range(steps)]))
    assert (judge.asked, attribution.judge) == (0, "feedback")
    assert [label.label for label in attribution.labels] == ["BAD"] * steps


async def test_evidence_that_is_away_is_waited_for():
    class Away(Said):
        async def step_feedback(self, runs: Sequence[Trajectory]) -> dict[str, list[tuple[int, Feedback]]]:
            raise DependencyUnavailable("locked")

    with pytest.raises(DependencyUnavailable, match="locked"):
        await with_evidence(Failing(0), Away())
