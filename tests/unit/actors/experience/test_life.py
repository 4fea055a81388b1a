"""The life of lessons in the experiencer, on the real store and the real desk: who may be a source, what is tried."""

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from actors.experience import experiencer
from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.experience.probing import Prober
from actors.experience.probing_round import ProbeSettings
from actors.experience.skill_trials import SkillReplayer
from actors.kinds.holdout import held_out
from actors.messages import Attributed, Attribution, Directive, Experience, Serving, Trajectory
from actors.store import Store
from actors.system.actor import Received, Result
from adapters.environments.travel import Drift, TravelDesk
from daemon.collectors.experience import OTHERS, experience_figures
from tests.support.travelling import Clerk, plays

pytestmark = pytest.mark.anyio
CHECK = "before_cancel:check_policy then cancel:cancel"


class World:
    def __init__(self, store: Store, work: Path) -> None:
        self.store, self.desk, self.now = store, work / "desk.json", 1000.0
        self.settings = ExperiencerSettings(contrast_every=1)
        self.sandbox = False
        self.actor = self.build()

    def build(self) -> Experiencer:
        environment = TravelDesk(self.desk)
        prober = Prober(
            ProbeSettings(), environment=environment, player=Clerk(random.Random(3)), clock=lambda: self.now
        )
        tester = SkillReplayer(environment)
        return Experiencer(
            self.settings, store=self.store, prober=prober if self.sandbox else None, clock=lambda: self.now,
            tester=tester if self.sandbox else None,
        )  # fmt: skip

    async def restart(self, **settings: object) -> None:
        self.settings = msgspec.structs.replace(self.settings, **settings)
        self.actor = self.build()
        await self.actor.start()

    async def see(self, *runs: Trajectory) -> Result:
        items = [
            Attributed(id=run.id, trajectory=run, attribution=Attribution(labels=(), judge="r", rubric="1"))
            for run in runs
        ]
        await self.store.save(items)
        return await self._commit(await self.actor.handle([Received(item.id, "", item) for item in items]))

    async def hear(self, message: Directive | Serving) -> None:
        await self._commit(await self.actor.handle([Received(message.id, "", message)]))

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 60.0
            await self._commit(await self.actor.tick())

    async def _commit(self, result: Result) -> Result:
        await self.store.save(list(result.records))
        return result

    async def lesson(self, content: str) -> Experience:
        return next(one for one in await self.store.experiences() if one.content == content)

    async def of_kind(self, kind: str) -> list[Experience]:
        return [one for one in await self.store.experiences() if one.kind == kind]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def world(tmp_path: Path, store_url: str) -> AsyncIterator[World]:
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    world = World(store, tmp_path)
    await world.actor.start()
    yield world
    await store.aclose()


def traffic(count: int, caller: str = "", seed: int = 0, **fields: object) -> list[Trajectory]:
    return [played.trajectory for played in plays(count, seed=seed, caller=caller, **fields)]


async def test_what_one_of_several_keys_shows_is_quarantined_until_another_shows_it(world: World):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(120, "key-1"))
    lesson = await world.lesson(CHECK)
    assert (lesson.state, lesson.reason) == ("quarantined", "1 of 2 independent sources")
    await world.see(*traffic(120, "key-2", seed=1))
    lesson = await world.lesson(CHECK)
    assert (lesson.state, lesson.reason, lesson.independent, lesson.revision) == ("candidate", "", 2, 1)


async def test_a_tenant_remembers_across_a_restart_that_it_has_several_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(1, "key-1", seed=8))
    await world.tick()
    monkeypatch.setattr(experiencer, "_WINDOW", 120)
    await world.restart()
    await world.see(*traffic(140, "key-1"))
    assert (await world.lesson(CHECK)).state == "quarantined"


async def test_our_own_rollouts_need_nobody_else(world: World):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(1, "key-1", seed=8))
    await world.see(*traffic(120, source="sandbox"))
    assert (await world.lesson(CHECK)).state == "candidate"


async def test_held_out_tasks_never_become_sources(world: World):
    await world.see(*traffic(400))
    lessons = await world.store.experiences()
    assert lessons
    assert any(held_out(f"run-0-{n}") for n in range(400))
    assert not any(held_out(source) for lesson in lessons for source in lesson.sources)
    assert world.actor.counts["held_out"] == sum(held_out(f"run-0-{n}") for n in range(400))


async def test_the_sandbox_plays_training_tasks_and_skills_are_tried_on_them_alone(world: World):
    splits: list[str] = []

    class Watched(TravelDesk):
        def sample(self, seed, split, families):
            splits.append(split)
            return super().sample(seed, split, families)

    world.sandbox = True
    tester = SkillReplayer(Watched(world.desk))
    await world.restart(draw_skills=True)
    await world.see(*traffic(120))
    (lesson, *_) = await world.of_kind("skill")
    assert await tester.test(lesson)
    assert set(splits) == {"train"}


async def test_without_a_sandbox_later_traffic_confirms_a_candidate(world: World):
    await world.restart(contrast_every=64)
    await world.see(*traffic(120, seed=1))
    assert (await world.lesson(CHECK)).state == "candidate"
    world.now += 10.0
    later = [msgspec.structs.replace(run, ended=world.now + 1.0) for run in traffic(500, seed=2)]
    await world.see(*later)
    await world.see(*later[:1])
    lesson = await world.lesson(CHECK)
    assert (lesson.state, lesson.reason) == ("active", "confirmed by later traffic")


async def test_where_there_is_a_sandbox_traffic_confirms_nothing(world: World):
    world.sandbox = True
    await world.restart(contrast_every=64)
    await world.see(*traffic(120, seed=1))
    world.now += 10.0
    await world.see(*[msgspec.structs.replace(run, ended=world.now + 1.0) for run in traffic(500, seed=2)])
    assert (await world.lesson(CHECK)).state == "candidate"


async def test_skills_and_tool_memories_are_drawn_where_that_is_asked_for(world: World):
    await world.see(*traffic(200))
    assert await world.of_kind("skill") == await world.of_kind("tool") == []
    await world.restart(draw_skills=True, draw_tools=True)
    await world.see(*traffic(200, seed=1))
    assert {one.state for one in await world.of_kind("skill")} == {"candidate"}
    memories = {one.when_to_use: one for one in await world.of_kind("tool")}
    assert {one.state for one in memories.values()} == {"active"}
    assert memories["cancel"].detail["errors"] > 0
    assert {one.origin for one in memories.values()} == {"calls"}


async def test_a_skill_becomes_active_by_its_replay_and_is_tried_again_after_a_drift(world: World):
    world.sandbox = True
    await world.restart(draw_skills=True)
    await world.see(*traffic(200))
    await world.tick(10)
    states = {one.content: one.state for one in await world.of_kind("skill")}
    assert "active" in states.values()
    Drift(precondition={"book": "hold"}).write(world.desk)
    details = {"cause": "errors", "tenant": "default", "missing": "quote", "new": "hold"}
    await world.hear(Directive(id="d", kind="drift", reason="", origin="sentinel", details=details))
    await world.tick(10)
    after = {one.content: (one.state, one.reason) for one in await world.of_kind("skill")}
    booking = [after[content] for content, state in states.items() if state == "active" and "book(" in content]
    assert booking
    assert set(booking) == {("retired", "its replay failed")}


async def test_a_tenant_that_writes_nine_tenths_crowds_nobody_out(world: World):
    rng = random.Random(0)
    loud, quiet = traffic(540, seed=3, tenant="loud"), traffic(60, seed=4, tenant="quiet")
    mixed = sorted([*loud, *quiet], key=lambda _: rng.random())
    await world.restart(contrast_every=16)
    for first in range(0, len(mixed), 64):
        await world.see(*mixed[first : first + 64])
    assert {one.tenant for one in await world.store.experiences()} == {"loud", "quiet"}


async def test_the_pool_has_a_bound_and_says_what_it_evicted(world: World):
    await world.restart(max_lessons=2, draw_tools=True)
    await world.see(*traffic(200))
    evicted = [one for one in await world.store.experiences() if one.reason.startswith("evicted")]
    assert world.actor.counts["evicted"] == len(evicted) > 0
    assert sum(one.state != "retired" for one in await world.store.experiences()) <= 2


async def test_after_a_swap_the_weights_are_asked_without_the_lesson(world: World):
    world.sandbox = True
    await world.restart()
    await world.see(*traffic(120))
    lesson = msgspec.structs.replace(await world.lesson(CHECK), state="active", revision=5, updated=900.0)
    await world.store.save([lesson])
    await world.restart()
    await world.hear(Serving(id="s", engine="e", version=7, previous=6, path="", result="swapped", since=world.now))
    world.now += 100.0
    await world.see(*[
        Trajectory(
            id=f"r{n}", source="sandbox", goal="Cancel the order.", steps=(), outcome=1.0, started=world.now,
            ended=world.now, experience_ids=(lesson.id,) if n % 2 else (), min_version=7, max_version=7,
        )
        for n in range(96)
    ])  # fmt: skip
    after = await world.lesson(CHECK)
    assert (after.state, after.reason) == ("retired", "internalised")
    assert after.detail == {"internalised_at": 7}


async def test_metrics_tell_what_is_in_the_pool(world: World):
    await world.see(*traffic(1, "key-2", seed=9), *traffic(120, "key-1"))
    for n in range(70):
        await world.store.save([Experience(id=f"i{n}", tenant=f"tenant-{n}", when_to_use="book", content="x")])
    await world.tick()
    found = {metric.name: metric for metric in experience_figures(world.actor)}
    lessons = {tuple(sample.labels.values()): sample.value for sample in found["evolved_experience_lessons"].samples}
    assert lessons["default", "precondition", "quarantined"] == 1
    assert lessons[OTHERS, "practice", "candidate"] == 7
    events = {sample.labels["what"] for sample in found["evolved_experience_events"].samples}
    assert "held_out" in events


async def test_lessons_can_be_written_down(world: World):
    await world.restart(draw_skills=True, draw_tools=True)
    await world.see(*traffic(200))
    for lesson in await world.store.experiences():
        json.dumps(lesson.detail)
