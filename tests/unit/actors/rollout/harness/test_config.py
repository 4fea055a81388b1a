"""Rollout and gate play in the same manner, and what a user's loop breaks costs one attempt."""

import random
from itertools import count

import anyio
import pytest
import trio

from actors.gate.exam import Exam, ExamSettings
from actors.messages import Experience, Trajectory
from actors.rollout import rollout as rolling
from actors.rollout.context import ContextTemplate
from actors.rollout.context.managing import TOOL, SelfManaging
from actors.rollout.harness.agents import Agent
from actors.rollout.harness.config import HarnessConfig
from actors.rollout.rollout import Rollout
from actors.rollout.settings import RolloutSettings
from tests.support.contexts import Recorder
from tests.support.fakes import FakeContext, FakeEngine, FakeEnvironment, FakeRetriever, FakeStore
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio


LESSON = Experience(id="lesson-1", when_to_use="LESSON", content="win, then finish", kind="practice")


async def rolled(
    harness: HarnessConfig, *lessons: Experience, **settings
) -> tuple[Recorder, Rollout, list[Trajectory]]:
    """One round of two groups of four."""
    engine, context = Recorder(FakeEngine(skill={0: 0.5})), FakeContext(FakeStore())
    rollout = Rollout(
        RolloutSettings(**{"groups": 2, "group_size": 4, "system": "desk", **settings}),
        store=context.store, engine=engine, environment=FakeEnvironment(), retriever=FakeRetriever(*lessons),
        clock=trio.current_time, rng=random.Random(1), harness=harness,
    )  # fmt: skip
    await rollout.start()
    async with anyio.create_task_group() as group:
        group.start_soon(rollout.run, context)
        await anyio.sleep(30)
        context.draining.set()
    emitted = [output.message for result in context.results for output in result.outputs]
    return engine, rollout, emitted


async def test_the_exam_is_played_in_the_rollouts_context():
    engine, _, _ = await rolled(HarnessConfig(SelfManaging()))
    assert TOOL in str(engine.requests[0]["tools"])
    judged = Recorder(FakeEngine())
    exam = Exam(
        ExamSettings(attempts=1), environment=FakeEnvironment(), engine=judged, harness=HarnessConfig(SelfManaging())
    )
    await exam.play(0, {0: 0}, lambda number, solved: None)
    assert judged.requests[0]["tools"] == engine.requests[0]["tools"]


async def test_a_loop_that_breaks_now_and_then_costs_those_attempts_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rolling, "_RETRIES", 0)
    numbers = count()

    class Sloppy:
        async def run(self, session):
            answer = (await session.chat(session.messages))["choices"][0]["message"]
            if next(numbers) % 4 == 0:
                raise RuntimeError("boom")
            await session.step(answer["tool_calls"])

    _, rollout, found = await rolled(HarnessConfig(agent=Agent(Sloppy)))
    assert len(found) + rollout.lost["agent_failed"] == len(found) * 4 / 3
    assert rollout.lost["agent_failed"] >= 2
    assert rollout.cut == {"left": len(found)}


async def test_what_cut_an_episode_short_is_counted():
    _, rollout, found = await rolled(HarnessConfig(ContextTemplate(budget=70)), max_steps=5)
    assert rollout.cut == {"budget": len(found)}
    assert {run.closed_by for run in found} == {"limit"}
