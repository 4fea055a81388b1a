"""Canaries: a judge that was swapped for a worse one is found out, and real labels never suffer from it."""

import random

import anyio
import pytest

from actors.messages import Attribution, StepLabel, Trajectory
from actors.ports.errors import ModelUnavailable
from adapters.judges.canaries import CanaryJudge, check, draw
from adapters.judges.screening import agent_speaks, speaks_to_judge
from adapters.judges.verified import evidence
from tests.support.travelling import call, trajectory

pytestmark = pytest.mark.anyio
RUN = trajectory([(call("find_person", name="Mia"), '{"pid": "K1"}')] * 2, goal="Find Mia.", id="real")


class Knows:
    """Knows every canary drawn with its seed, praises all else."""

    name, rubric = "knows", "knows-1"

    def __init__(self, answer) -> None:
        self.answer = answer

    async def label(self, trajectory: Trajectory) -> Attribution:
        labels = ["GOOD"] * len(trajectory.steps) if trajectory.id == "real" else await self.answer(trajectory)
        found = tuple(StepLabel(label or "ABSTAIN") for label in labels)
        return Attribution(labels=found, judge=self.name, rubric=self.rubric)


async def counts(answer, times: int = 40) -> CanaryJudge:
    judge = CanaryJudge(Knows(answer), share=1.0, rng=random.Random(1), patience=0.2)
    for _ in range(times):
        assert [label.label for label in (await judge.label(RUN)).labels] == ["GOOD", "GOOD"]
    return judge


async def test_a_judge_that_praises_everything_fails_its_canaries_and_real_labels_stay():
    async def praise(run: Trajectory) -> list[str]:
        return ["GOOD"] * len(run.steps)

    judge = await counts(praise)
    assert judge.counts["canary_failed"] > judge.counts["canary_passed"] > 0
    assert judge.counts["canary_failed"] + judge.counts["canary_passed"] == 40


async def test_a_judge_that_goes_by_evidence_passes_or_is_silent():
    async def told(run: Trajectory) -> list[str]:
        known = evidence(run)
        return [known[n].label if n in known else "ABSTAIN" for n in range(len(run.steps))]

    judge = await counts(told)
    assert judge.counts["canary_failed"] == 0
    assert judge.counts["canary_passed"] == 40


async def test_what_goes_wrong_with_a_canary_never_reaches_the_real_judgement():
    async def breaks(run: Trajectory) -> list[str]:
        raise random.Random(run.id).choice((KeyError("x"), ModelUnavailable("gone")))

    async def hangs(run: Trajectory) -> list[str]:
        await anyio.sleep_forever()
        return []

    assert (await counts(breaks, 5)).counts == {"canary_lost": 5}
    assert (await counts(hangs, 2)).counts == {"canary_lost": 2}


def test_every_canary_has_a_credit_that_evidence_does_not_contradict_and_passes_the_screening():
    rng = random.Random(0)
    kinds: set[str] = set()
    for _ in range(200):
        canary = draw(rng)
        kinds.add(canary.kind)
        assert len(canary.truth) == len(canary.trajectory.steps)
        assert all(canary.truth[n] in (label.label, None) for n, label in evidence(canary.trajectory).items())
        # Screened canaries would be silent: they would say nothing of the model.
        assert not any(agent_speaks(step) or speaks_to_judge(step.observation) for step in canary.trajectory.steps)
        right = tuple(StepLabel(label or "ABSTAIN") for label in canary.truth)
        assert check(canary, Attribution(labels=right, judge="j", rubric="r")) == "canary_passed"
        assert check(canary, Attribution(labels=right[1:], judge="j", rubric="r")) == "canary_failed"
    assert kinds == {"straight", "broken", "mixed", "empty", "pleading"}


@pytest.mark.parametrize("share", [0.0, 1.0])
async def test_a_judge_that_is_away_is_said_to_be_and_sees_canaries_in_their_share_alone(share: float):
    async def gone(run: Trajectory) -> list[str]:
        asked.append(run.id)
        raise ModelUnavailable("gone")

    asked: list[str] = []
    with pytest.raises(ModelUnavailable, match="gone"):
        await CanaryJudge(Knows(gone), share=share, rng=random.Random(1)).label(trajectory([], goal="x", id="other"))
    assert share or asked == ["other"]
