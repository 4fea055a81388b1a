"""Rounds of sandbox groups, on a clock that jumps."""

import random

import anyio
import msgspec
import pytest
import trio

from actors.gate.exam import Exam, ExamSettings
from actors.messages import Experience, Trajectory
from actors.ports.store import TaskPlanner
from actors.rollout import rollout as rolling
from actors.rollout.context.managing import TOOL, SelfManaging
from actors.rollout.harness.config import PLAIN, HarnessConfig
from actors.rollout.rollout import Rollout
from actors.rollout.settings import RolloutSettings
from actors.store.errors import StoreUnavailable
from tests.support.contexts import Recorder
from tests.support.fakes import FakeEngine, FakeEnvironment, FakeOutbox, FakeRetriever, FakeStore
from tests.support.simulated_time import anyio_backend as anyio_backend
from tests.unit.actors.rollout.test_own_tasks import Wants

pytestmark = pytest.mark.anyio
LESSON = Experience(id="lesson-1", when_to_use="LESSON", content="win, then finish", kind="practice")


class Bench:
    def __init__(self, *lessons: Experience, environment: FakeEnvironment | None = None, **settings) -> None:
        self.store, self.engine = FakeStore(), FakeEngine(skill={0: 0.5})
        self.environment = environment or FakeEnvironment()
        self.settings = RolloutSettings(**{"groups": 3, "group_size": 4, "stall_seconds": 60.0, **settings})
        self.retriever = FakeRetriever(*lessons)
        self.old: set[int] = set()
        """Versions that are too old to be trained on."""
        self.harness = PLAIN
        self.rollout = self.make()
        self.outbox = FakeOutbox(self.store)

    def make(self, planner: TaskPlanner | None = None) -> Rollout:
        return Rollout(
            self.settings,
            store=self.store,
            engine=self.engine,
            environment=self.environment,
            retriever=self.retriever,
            clock=trio.current_time,
            rng=random.Random(1),
            planner=planner,
            trains=lambda version: version not in self.old,
            harness=self.harness,
        )

    async def run(self, seconds: float, *versions: tuple[float, int]) -> list[Trajectory]:
        """Run for `seconds`, telling of versions at their times."""
        await self.rollout.start()
        async with anyio.create_task_group() as group:
            group.start_soon(self.rollout.run, self.outbox)
            began = anyio.current_time()
            for at, version in versions:
                await anyio.sleep_until(began + at)
                self.rollout.loaded(version)
            await anyio.sleep_until(began + seconds)
            self.outbox.draining.set()
        return [o.message for r in self.outbox.results for o in r.outputs if isinstance(o.message, Trajectory)]


async def test_a_round_starts_at_once_and_only_one():
    bench = Bench()
    found = await bench.run(30)
    assert len(found) == 12
    assert {trajectory.group for trajectory in found} == {found[0].group, found[4].group, found[8].group}
    assert len({trajectory.id for trajectory in found}) == 12
    assert {trajectory.source for trajectory in found} == {"sandbox"}
    assert all(trajectory.outcome in (0.0, 1.0) and trajectory.trainable for trajectory in found)
    assert {split for split, _ in bench.environment.begun} == {"train"}


async def test_a_store_that_is_away_for_a_moment_costs_no_episode():
    class Hiccups:
        """A task source whose database answers every other question."""

        asked = 0

        def release(self) -> None:
            pass

        async def draw(self, count: int) -> list:
            return await self._answer([])

        async def report(self, task_id: str, outcomes: list[float], *, blamed: bool = True) -> None:
            await self._answer(None)

        async def _answer(self, answer):
            self.asked += 1
            if self.asked % 2:
                raise StoreUnavailable("database is locked")
            return answer

    bench = Bench()
    bench.rollout._mixture = source = Hiccups()
    found = await bench.run(30)
    assert (len(found), source.asked) == (12, 8)


ROUNDS = {
    "the same version twice answers once": (40, [(10, 1), (20, 2), (25, 2)], {}, 36),
    "none while an old version is on the engine": (40, [(10, 1), (20, 5), (25, 1)], {"old": {1}}, 24),
    "an old version that stays is played after a while": (130, [(10, 1)], {"old": {1}}, 36),
    "without a version another comes after a while": (130, [], {}, 36),
    "while frozen there are none": (100, [(10, 1)], {"frozen": True}, 0),
}


@pytest.mark.parametrize(("seconds", "versions", "state", "attempts"), ROUNDS.values(), ids=ROUNDS)
async def test_when_rounds_come(seconds: int, versions: list[tuple[int, int]], state: dict, attempts: int):
    bench = Bench()
    bench.old, bench.store.is_frozen = state.get("old", set()), state.get("frozen", False)
    assert len(await bench.run(seconds, *versions)) == attempts


async def test_rounds_that_came_to_nothing_do_not_hold_back_later_ones():
    bench = Bench()
    silent = len(await bench.run(250))
    bench.rollout, bench.outbox = bench.make(), FakeOutbox(bench.store)
    answered = len(await bench.run(250, (241, 1), (243, 2), (245, 3)))
    assert answered == silent + 36, "each version brings its round at once, however many rounds went unanswered"


async def test_rounds_in_which_all_groups_agree_are_followed_at_once_a_few_times(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rolling, "_AGREEING", 2)
    bench = Bench()
    bench.engine.skill = {0: 1.0}
    assert len(await bench.run(30)) == 3 * 12


async def test_an_engine_that_comes_late_is_waited_for():
    bench = Bench()
    bench.engine.down = True

    async def wake():
        await anyio.sleep(20)
        bench.engine.down = False

    async with anyio.create_task_group() as group:
        group.start_soon(wake)
        found = await bench.run(40)
    assert len(found) == 12
    assert bench.rollout.lost == {}


class Kinds(FakeEnvironment):
    """Task by task another kind."""

    def sample(self, seed: int, split, families: str | None):
        goal = ("book", "cancel", "find")[seed % 3]
        return msgspec.structs.replace(super().sample(seed, split, families), goal=goal)


async def test_the_next_tasks_of_the_planned_kinds_are_played():
    bench = Bench(groups=4, environment=Kinds())
    passed_over = [0, 3, 6, 9]
    for wanted, seeds in ({"cancel": 3, "find": 1}, [1, 2, 4, 7]), ({"book": 4}, [1, 2, 4, 7, *passed_over]):
        bench.rollout, bench.outbox = bench.make(Wants(**wanted)), FakeOutbox(bench.store)
        await bench.run(10)
        assert sorted({seed for _, seed in bench.environment.begun}) == sorted(seeds)


async def test_a_broken_task_costs_its_group_only():
    bench = Bench()
    bench.environment.broken = {1}
    assert len(await bench.run(30)) == 8
    assert bench.rollout.lost == {"lessons_unavailable": 1, "environment_failed": 1, "given_up": 3}


async def test_a_lesson_that_cannot_be_cut_out_is_lost_and_counted():
    bench = Bench(LESSON)
    bench.environment.system = "not the template's"
    assert len(await bench.run(30)) == 6
    assert bench.rollout.lost == {"hint_not_separable": 6}


async def test_episodes_are_limited_at_once():
    bench = Bench(concurrency=5)
    original, running, most = bench.engine.chat, 0, 0

    async def watched(body):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.1)
        running -= 1
        return await original(body)

    bench.engine.chat = watched
    assert len(await bench.run(30)) == 12
    assert most == 5


@pytest.mark.parametrize(("share", "guided"), [(0.5, 6), (0.0, 0), (1.0, 12), (0.25, 3)])
async def test_who_sees_lessons_in_a_group(share: float, guided: int):
    found = await Bench(LESSON, guided_share=share).run(30)
    assert len(found) == 12
    assert sum(bool(run.experience_ids) for run in found) == guided


async def test_a_quarantined_lesson_is_shown_to_nobody():
    found = await Bench(msgspec.structs.replace(LESSON, state="quarantined")).run(30)
    assert len(found) == 12
    assert not any(run.experience_ids for run in found)


async def test_lessons_are_looked_up_by_the_goal_and_the_tools():
    bench, asked = Bench(LESSON, groups=1), []
    lessons = bench.retriever.lessons

    async def noted(goal, tenant="another", step="", tools=()):
        asked.append((tenant, step, frozenset(tools)))
        return await lessons(goal, tenant, step, tools)

    bench.retriever.lessons = noted
    found = await bench.run(30)
    assert asked == [("default", "", frozenset({"win", "lose", "finish"}))]
    assert sum(bool(run.experience_ids) for run in found) == 2


async def test_the_exam_is_played_in_the_rollouts_context():
    bench = Bench(groups=1)
    bench.engine, bench.harness = Recorder(bench.engine), HarnessConfig(SelfManaging())
    bench.rollout = bench.make()
    await bench.run(30)
    assert TOOL in str(bench.engine.requests[0]["tools"])
    judged = Recorder(FakeEngine())
    exam = Exam(ExamSettings(attempts=1), environment=FakeEnvironment(), engine=judged, harness=bench.harness)
    await exam.play(0, {0: 0}, lambda number, solved: None)
    assert judged.requests[0]["tools"] == bench.engine.requests[0]["tools"]
