"""Several graders: the camp that is larger, its mean, and no middle between camps."""

from collections.abc import Sequence

import anyio
import pytest

from actors.messages import Step, Task
from actors.ports.errors import AdapterNotSetUp
from actors.ports.models import Grade
from adapters.graders.ensemble import EnsembleGrader, make
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio
TASK = Task(id="t", goal="g", environment="fake")


class Fixed:
    def __init__(self, score: float | None, error: Exception | None = None, seconds: float = 0.0) -> None:
        self.name, self.score, self.error, self.seconds = f"says-{score}", score, error, seconds

    async def grade(self, task: Task, steps: Sequence[Step], *, reference=()) -> Grade:
        await anyio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return Grade(score=self.score, tokens=10, cost=0.5)


@pytest.mark.parametrize(
    ("scores", "quorum", "grade", "count"),
    [
        ((0.8, 0.9, 1.0), 2, 0.9, "agreed"),
        ((0.8, 0.9, 0.1), 2, 0.85, "agreed"),
        ((0.1, 0.3, 0.9), 2, 0.2, "agreed"),
        ((0.9, 0.1), 1, None, "disagreed"),
        ((0.9, None, None), 2, None, "short"),
        ((0.9, 0.7, None), 2, 0.8, "agreed"),
        ((0.9, 0.7, 0.1), 3, None, "disagreed"),
        ((None, None), 1, None, "short"),
    ],
)
async def test_the_larger_camp_decides_if_it_is_large_enough(scores, quorum, grade, count) -> None:
    ensemble = EnsembleGrader([Fixed(score) for score in scores], quorum=quorum, timeout=5.0)
    found = await ensemble.grade(TASK, [])
    assert found.score == pytest.approx(grade)
    assert ensemble.counts == {count: 1}
    assert (found.tokens, found.cost) == (10 * len(scores), 0.5 * len(scores))


async def test_a_member_that_breaks_or_hangs_has_no_voice_and_takes_none_away() -> None:
    members = [Fixed(0.9), Fixed(0.8), Fixed(0.1, RuntimeError("boom")), Fixed(0.2, seconds=60.0)]
    ensemble = EnsembleGrader(members, quorum=2, timeout=5.0)
    assert (await ensemble.grade(TASK, [])).score == pytest.approx(0.85)
    assert ensemble.counts == {"agreed": 1, "failed_says-0.1": 1, "late_says-0.2": 1}


def test_an_ensemble_of_unknown_members_is_refused_by_name() -> None:
    with pytest.raises(AdapterNotSetUp, match="nobody"):
        make(members=[{"grader": "nobody"}, {"grader": "nobody"}])
    with pytest.raises(AdapterNotSetUp, match="two or more"):
        make(members=[{"grader": "open"}])
