"""Lessons in the experiencer, on the real store: each agent's from its own runs, filed by what was done."""

from collections.abc import AsyncIterator

import pytest

from actors.experience.experiencer import Experiencer, ExperiencerSettings
from actors.experience.window import Window
from actors.messages import Attributed, Attribution, Experience, Trajectory
from actors.store import Store
from actors.system.actor import Received
from tests.support.invented_worlds import WORLDS, desk, traffic

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class World:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.actor = Experiencer(
            ExperiencerSettings(contrast_every=24), store=store, prober=None, clock=lambda: 1e6, exam=lambda key: False
        )

    async def see(self, *runs: Trajectory) -> None:
        credit = Attribution(labels=(), judge="r", rubric="1")
        for at in range(0, len(runs), 24):
            items = [Attributed(id=run.id, trajectory=run, attribution=credit) for run in runs[at : at + 24]]
            result = await self.actor.handle([Received(item.id, "", item) for item in items])
            await self.store.save(list(result.records))

    async def live(self) -> dict[str, Experience]:
        return {one.content: one for one in await self.store.experiences() if one.state != "retired"}


@pytest.fixture
async def world(tmp_path) -> AsyncIterator[World]:
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 1e6)
    await store.open()
    world = World(store)
    await world.actor.start()
    yield world
    await store.aclose()


async def test_three_agents_of_one_tenant_each_show_what_their_tools_need_without_a_sandbox(world: World):
    await world.see(*desk(0, 192, 0.05))
    told = await world.live()
    assert {
        "before create_refund always call check_policy with the same order",
        "before orders.cancel always call orders.hold with the same order",
        "before resetPassword always call verifyUser with the same user",
        "before closeAccount always call verifyUser with the same user",
    } <= told.keys()


async def test_a_lesson_that_is_drawn_again_is_the_same_lesson_whatever_words_goals_share_by_then(world: World):
    crm = next(one for one in WORLDS if one.name == "crm, German")
    for seed in range(6):
        await world.see(*traffic(crm, seed, noise=0.05))
    contents = [one.content for one in await world.store.experiences()]
    assert len(contents) == len(set(contents))
    assert any("vertragEntsperren" in content for content in contents)


async def test_later_traffic_that_says_the_same_makes_it_active_where_there_is_no_sandbox(world: World):
    crm = next(one for one in WORLDS if one.name == "crm, German")
    await world.see(*traffic(crm, 0, noise=0.0))
    assert [one.state for one in (await world.live()).values()] == ["candidate"]
    later = [run for seed in range(1, 4) for run in traffic(crm, seed, noise=0.05, started=2e6, ended=2e6)]
    await world.see(*later)
    (lesson,) = (await world.live()).values()
    assert (lesson.state, lesson.reason) == ("active", "confirmed by later traffic")


async def test_two_lessons_of_one_agent_do_not_drive_each_other_out(world: World):
    await world.see(*desk(1, 240, 1.0))
    states = {one.content: one for one in (await world.live()).values()}
    assert len(states) >= 5
    assert not any("another lesson" in one.reason for one in await world.store.experiences())


def test_runs_with_an_outcome_are_not_washed_out_by_those_without():
    window = Window(16, exam=lambda key: False)
    for n in range(320):
        outcome = 1.0 if n % 20 == 0 else None
        window.add(
            Trajectory(id=f"r{n}", goal="g", steps=(), outcome=outcome, started=float(n), ended=float(n), caller="k")
        )
    kept = list(window)
    assert sum(run.outcome is not None for run in kept) == 16
    assert len(kept) == 32
    assert [run.ended for run in kept] == sorted(run.ended for run in kept)


def test_an_outcome_that_comes_later_moves_a_run_and_does_not_double_it():
    window = Window(4, exam=lambda key: False)
    runs = [Trajectory(id=f"r{n}", goal="g", steps=(), started=0.0, ended=float(n), caller="k") for n in range(4)]
    for run in runs:
        window.add(run)
    told = Trajectory(id="r1", goal="g", steps=(), outcome=0.0, started=0.0, ended=1.0, caller="k")
    assert window.revise(told)
    assert [run.id for run in window] == ["r0", "r1", "r2", "r3"]
    assert window.get(["r1"]) == [told]
    window.forget(["r1"])
    assert len(window) == 3
