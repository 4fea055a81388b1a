"""The attributor: every closed trajectory comes out with a label a step, whatever the judge does."""

from collections.abc import Sequence

import anyio
import msgspec
import pytest

from actors.credit.asking import ATTEMPTS
from actors.credit.attributor import PATIENCE, Attributor
from actors.credit.calibration import figures
from actors.kinds.clusters import cluster_of
from actors.kinds.holdout import chance
from actors.messages import Attributed, Attribution, Feedback, StepLabel, Trajectory
from actors.ports.errors import ModelUnavailable
from actors.system.actor import Received
from actors.system.errors import DependencyUnavailable
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from adapters.judges.rules import RulesJudge
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.support.travelling import plays

pytestmark = pytest.mark.anyio
BLIND = "actors.credit.attributor.BLIND_SHARE"


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


async def handled(actor: Attributor, batch: list[Received]) -> list[Attributed]:
    result = await actor.handle(batch)
    assert [output.subject for output in result.outputs] == [TRAJECTORY_ATTRIBUTED] * len(batch)
    assert [output.message for output in result.outputs] == list(result.records)
    return [record for record in result.records if isinstance(record, Attributed)]


async def attributed(judge: Failing | RulesJudge, count: int = 1, **settings: float) -> list[Attributed]:
    return await handled(Attributor(**settings, judge=judge), received(count))  # type: ignore[arg-type]


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
    found = await attributed(judge)
    assert judge.asked == 3
    assert {label.label for label in found[0].attribution.labels} == {"GOOD"}


@pytest.mark.parametrize(
    ("how", "reason"), [(ValueError("not what I asked for"), "error"), (99, "labels"), (None, "timeout")]
)
async def test_a_judge_that_keeps_failing_abstains_on_every_step(how: Exception | int | None, reason: str):
    judge = Failing(99, how)
    actor = Attributor(judge=judge)
    (found,) = await handled(actor, received(1))
    assert judge.asked == ATTEMPTS
    assert actor.counts[f"abstained_{reason}"] == 1
    labels = found.attribution.labels
    assert len(labels) == len(found.trajectory.steps)
    assert {(label.label, label.confidence) for label in labels} == {("ABSTAIN", 0.0)}


async def test_a_judge_that_is_away_is_waited_for():
    with pytest.raises(DependencyUnavailable, match="no answer"):
        await attributed(Failing(1, ModelUnavailable("no answer")), 3)


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

    async def judgements(self, keys: Sequence[str]) -> dict[str, bytes]:
        return {}

    async def keep_judgements(self, judgements: object, states: object) -> None:
        pass


def on_step(number: int, outcome: float, text: str = "") -> tuple[int, Feedback]:
    return number, Feedback(id=f"f{number}", received=1.0, kind="step", outcome=outcome, text=text)


async def with_evidence(judge: Failing, said: Said) -> tuple[Attribution, Attributor]:
    actor = Attributor(judge=judge, store=said)
    (record,) = await handled(actor, received(1))
    return record.attribution, actor


async def test_what_somebody_reported_of_a_step_outranks_the_judge():
    said = Said([on_step(0, 1.0), on_step(0, 0.0, "wrong day"), on_step(1, 0.75)])
    attribution, actor = await with_evidence(Failing(0), said)
    assert attribution.labels[:2] == (StepLabel("BAD", 1.0, "feedback: wrong day"), StepLabel("GOOD", 0.5, "feedback"))
    assert {label for label in attribution.labels[2:]} == {StepLabel("GOOD")}
    assert (await with_evidence(Failing(0), Said([on_step(0, 0.5)])))[0].labels[0] == StepLabel(
        "ABSTAIN", 0.0, "feedback"
    ), "who says neither good nor bad is not overruled"
    assert (attribution.judge, actor.counts["told_steps"]) == ("failing", 2)


async def test_what_is_said_while_the_judge_thinks_still_counts():
    attribution, _ = await with_evidence(Failing(0), Said([], [on_step(0, 0.0)]))
    assert attribution.labels[0].label == "BAD"


async def test_no_judge_is_asked_where_every_step_has_been_reported_on():
    judge, steps = Failing(0), len(next(iter(plays(1))).trajectory.steps)
    attribution, _ = await with_evidence(judge, Said([on_step(number, 0.0) for number in range(steps)]))
    assert (judge.asked, attribution.judge) == (0, "feedback")
    assert [label.label for label in attribution.labels] == ["BAD"] * steps


class Priced(Failing):
    """Costs 10 tokens and 1.0 of money a question; says that successes are good and failures are bad."""

    async def label(self, trajectory: Trajectory) -> Attribution:
        self.asked += 1
        good = trajectory.outcome is None or trajectory.outcome >= 0.5
        labels = (StepLabel("GOOD" if good else "BAD"),) * len(trajectory.steps)
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=10, cost=1.0)


@pytest.fixture
def never_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BLIND, 0.0)


@pytest.mark.usefixtures("never_blind")
async def test_the_same_trajectory_under_another_id_costs_nothing():
    run = received(1)[0].message
    assert isinstance(run, Trajectory)
    copies = [msgspec.structs.replace(run, id=f"copy-{n}") for n in range(12)]
    judge, batch = Priced(0), [Received(copy.id, TRAJECTORY_CLOSED, copy) for copy in copies]
    actor = Attributor(judge=judge)
    found = [record.attribution for record in await handled(actor, batch)]
    assert judge.asked == 1
    assert sorted(one.cost for one in found) == [0.0] * 11 + [1.0]
    assert len({one.labels for one in found}) == 1
    assert (actor.counts["judged"], actor.counts["cached"]) == (1, 11)


@pytest.mark.usefixtures("never_blind")
async def test_a_spent_budget_abstains_and_is_counted():
    judge = Priced(0)
    actor = Attributor(tokens_per_day=50, concurrency=1, judge=judge)
    found = [record.attribution for record in await handled(actor, received(20))]
    assert judge.asked == 5
    assert sum(label.reason == "budget of tokens per day is spent" for one in found for label in one.labels[:1]) == 15
    assert actor.counts["abstained_budget"] == 15


class Coin(Priced):
    """Labels by chance, the same ones for the same trajectory."""

    async def label(self, trajectory: Trajectory) -> Attribution:
        labels = tuple(
            StepLabel("GOOD" if chance(trajectory.id, str(n)) < 0.5 else "BAD") for n in range(len(trajectory.steps))
        )
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric)


@pytest.mark.parametrize(("judge", "wanted"), [(Coin(0), 0.0), (RulesJudge(), 1.0)])
async def test_a_judge_that_knows_nothing_loses_its_weight_and_one_that_does_keeps_it(judge, wanted, monkeypatch):
    monkeypatch.setattr(BLIND, 1.0)
    actor = Attributor(judge=judge)
    batch = received(410)
    first = await handled(actor, batch[:32])
    await handled(actor, batch[32:400])
    last = await handled(actor, batch[400:])
    assert {record.attribution.weight for record in first} == {1.0}
    assert {record.attribution.weight for record in last} == {wanted}
    page = actor.stats.all()[0]
    assert page.weight == wanted
    assert figures(page.outcomes)["auc_low"] is not None


async def test_reports_on_steps_count_in_full_whatever_the_judges_weight(monkeypatch):
    monkeypatch.setattr(BLIND, 1.0)
    actor = Attributor(judge=Coin(0), store=Said([on_step(0, 0.0), on_step(1, 1.0)]))
    await actor.handle(received(400))
    again = msgspec.structs.replace(received(1)[0].message, id="x")
    (found,) = await handled(actor, [Received("x", TRAJECTORY_CLOSED, again)])
    labels = found.attribution.labels
    assert (actor.stats.all()[0].weight, found.attribution.weight) == (0.0, 1.0)
    assert [label.label for label in labels] == ["BAD", "GOOD", *["ABSTAIN"] * (len(labels) - 2)]


@pytest.mark.usefixtures("never_blind")
async def test_a_slow_batch_is_cut_off_and_gone_on_with():
    class Slow(Priced):
        async def label(self, trajectory: Trajectory) -> Attribution:
            await anyio.sleep(PATIENCE / 3 + 1.0)
            return await super().label(trajectory)

    judge = Slow(0)
    actor = Attributor(concurrency=1, judge=judge)
    with pytest.raises(DependencyUnavailable, match="slow"):
        await actor.handle(received(5))
    assert judge.asked == 3
    found = await handled(actor, received(5))
    assert (judge.asked, len(found)) == (5, 5)
