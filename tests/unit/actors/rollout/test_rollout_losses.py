"""What a round does about attempts that are lost: an environment that crashes or hangs, an engine without token ids."""

import itertools

import anyio
import pytest

from actors.messages import Task
from actors.ports.environments import Observation
from actors.ports.errors import EnvironmentFailed
from actors.rollout import rollout as rolling
from tests.support.fakes import FakeEnvironment, FakeEpisode
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.unit.actors.rollout.test_rollout import Bench

pytestmark = pytest.mark.anyio


def lose_answers(bench, count):
    """The engine's first answers come without tokens."""
    original, numbers = bench.engine.chat, itertools.count()

    async def now_and_then(body):
        lost = next(numbers) < count
        answer = await original(body)
        return {**answer, "prompt_token_ids": None} if lost else answer

    bench.engine.chat = now_and_then


class Poisonous(FakeEnvironment):
    """One task of each three hangs, or breaks down, in `step`; the others are sound."""

    def __init__(self, hangs: bool) -> None:
        super().__init__()
        self.hangs, self.closed = hangs, 0

    async def reset(self, task: Task) -> FakeEpisode:
        episode = await super().reset(task)
        if task.spec["seed"] % 3 == 1:

            async def step(calls, text) -> Observation:
                if self.hangs:
                    await anyio.sleep_forever()
                raise EnvironmentFailed("it crashed")

            async def aclose() -> None:
                self.closed += 1

            episode.step, episode.aclose = step, aclose
        return episode


async def test_an_attempt_that_was_lost_is_made_again():
    bench = Bench()
    lose_answers(bench, 1)
    assert len(await bench.run(30)) == 12
    assert (bench.rollout.lost, bench.rollout.retried) == ({}, 1)


async def test_a_task_that_crashes_is_given_up_and_the_rest_of_the_round_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rolling, "_LOSSES", 2)
    monkeypatch.setattr(rolling, "_RETRIES", 5)
    bench = Bench(concurrency=2, environment=Poisonous(hangs=False))
    found = await bench.run(30)
    assert len(found) == 8
    assert sum(bench.rollout.lost.values()) == 4
    assert len([seed for _, seed in bench.environment.begun if seed == 1]) <= 4, "not one of them six times"
    assert bench.environment.closed == len([seed for _, seed in bench.environment.begun if seed == 1])


async def test_a_task_that_hangs_holds_its_group_for_its_time_and_the_others_not_at_all():
    for seconds in (10, 30):
        bench = Bench(step_timeout=1e6, group_seconds=20.0, environment=Poisonous(hangs=True))
        assert len(await bench.run(seconds)) == 8, "the others are out already"
    assert bench.rollout.lost == {"group_late": 4}
    assert bench.environment.closed == 4 + 1, "four attempts, and one look"


async def test_losses_that_are_the_engines_give_up_no_task(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rolling, "_LOSSES", 1)
    monkeypatch.setattr(rolling, "_RETRIES", 0)
    bench = Bench()
    lose_answers(bench, 3)
    assert len(await bench.run(30)) == 9
    assert bench.rollout.lost == {"no_token_ids": 3}
