"""The policy's own attempts at a goal that nobody reached yet: one that a grader believes, or none."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from actors.messages import Step, Task
from actors.ports.models import Grade
from actors.tasks.searching import ShadowSearch
from adapters.environments.synthetic_tasks import SyntheticTasks
from tests.support.fakes import FakeEngine, FakeEnvironment, FakeEpisode

pytestmark = pytest.mark.anyio


class Winning:
    """Believes those who called `win`; may abstain."""

    name = "winning"

    def __init__(self, abstains: bool = False) -> None:
        self.abstains, self.asked = abstains, 0

    async def grade(self, task: Task, steps: Sequence[Step], *, reference=()) -> Grade:
        self.asked += 1
        won = any(call.name == "win" for step in steps for call in step.tool_calls)
        return Grade(score=None if self.abstains else 0.9 if won else 0.1)


class Worlds(FakeEnvironment):
    """Episodes whose state can be looked at."""

    async def reset(self, task: Task) -> FakeEpisode:
        episode: Any = await super().reset(task)

        async def state() -> dict[str, Any]:
            return {"won": episode._won}

        episode.state = state
        return episode


def search(skill: float, grader: Winning, **settings) -> tuple[ShadowSearch, Worlds]:
    worlds = Worlds()
    made = ShadowSearch(
        **settings, engine=FakeEngine(skill={0: skill}), clock=lambda: 1.0,
        environment=SyntheticTasks(worlds, grader), grader=grader, rng=random.Random(1),
    )  # fmt: skip
    return made, worlds


async def test_the_first_attempt_that_is_believed_is_the_way() -> None:
    made, worlds = search(0.5, Winning(), attempts=20)
    run = await made.search(worlds.sample(3, "train", None), "reach it")
    assert (run.goal, run.source, [call.name for step in run.steps for call in step.tool_calls]) == (
        "reach it", "sandbox", ["win", "finish"],
    )  # fmt: skip
    assert all(episode.closed for episode in worlds.episodes)


@pytest.mark.parametrize(("skill", "abstains"), [(0.0, False), (1.0, True)])
async def test_attempts_are_bounded_and_an_abstention_is_no_success(skill: float, abstains: bool) -> None:
    grader = Winning(abstains)
    made, worlds = search(skill, grader, attempts=3)
    assert await made.search(worlds.sample(3, "train", None), "reach it") is None
    assert grader.asked == len(worlds.episodes) == 3
