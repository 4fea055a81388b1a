"""The environment's own tasks: what is planned is played, and no number is used up by looking at it."""

import random
from collections import Counter

import pytest

from actors.curation.pool import CuratorSettings
from actors.kinds.clusters import cluster_of
from actors.kinds.levels import REST
from actors.messages import Task
from actors.rollout.own_tasks import OwnTasks
from adapters.environments.travel import TravelDesk
from tests.simulation.words import bfcl
from tests.support.credited import attributed
from tests.support.fakes import FakeStore

pytestmark = pytest.mark.anyio
ROUNDS, TASKS = 60, 8


class Requests:
    """Goals that others wrote."""

    name = "requests"

    def __init__(self, goals: list[str]) -> None:
        self.goals = goals

    def sample(self, seed: int, split: str, families: str | None) -> Task:
        return Task(
            id=str(seed), goal=self.goals[seed % len(self.goals)], environment=self.name, spec={}, difficulty=0.5
        )


class Wants:
    """Wants these masked goals, as far as they can be had."""

    def __init__(self, **goals: int) -> None:
        self.goals = {cluster_of(goal): count for goal, count in goals.items()}

    def plan(self, count: int, offered: dict[str, int]) -> dict[str, int]:
        return {kind: min(count, offered.get(kind, 0)) for kind, count in self.goals.items()}

    def kind(self, goal: str) -> str:
        return cluster_of(goal)


def own(environment, planner, store: FakeStore | None = None) -> OwnTasks:
    return OwnTasks(
        store=store or FakeStore(), environment=environment, planner=planner, families=None, first=0, lookahead=16
    )


@pytest.mark.parametrize("world", [Requests(bfcl()), TravelDesk()], ids=["bfcl", "travel"])
async def test_what_is_planned_on_real_requests_is_played(world) -> None:
    rng, curriculum = random.Random(0), CuratorSettings().curriculum()
    made, played = own(world, curriculum), Counter[int]()
    for version in range(ROUNDS):
        numbers = await made.take(TASKS)
        assert len(numbers) == TASKS
        played.update(numbers)
        for number in numbers:
            goal = world.sample(number, "train", None).goal
            for attempt in range(4):
                attempted = attributed(
                    f"{number}-{attempt}", source="sandbox", goal=goal, group=str(number),
                    outcome=float(rng.random() < 0.5), min_version=version,
                )  # fmt: skip
                curriculum.saw(attempted.trajectory)
    counts = made.counts
    assert counts["planned"] > 0.8 * ROUNDS * TASKS
    assert counts["unplanned"] <= 0.1 * counts["planned"]
    assert counts["let_go"] == 0
    assert max(played.values()) == 1
    assert len({curriculum.kind(world.sample(number, "train", None).goal) for number in played} - {REST}) >= 2


async def test_numbers_that_wait_outlive_the_process() -> None:
    world, store = Requests(["a thing", "another thing", "anything"]), FakeStore()
    first = own(world, Wants(**{"another thing": 2}), store)
    played = [number for _ in range(4) for number in await first.take(6)]
    second = own(world, Wants(**{"a thing": 1, "anything": 1}), store)
    await second.start()
    assert second.waiting == first.waiting > 0
    later = await second.take(2)
    assert {number % 3 for number in later} == {0, 2}
    assert not {*played} & {*later}
    assert max(later) < max(played), "what waited comes first"


@pytest.mark.parametrize(("data", "expected"), [(b"17", [17, 18]), (b"[3,[1,2]]", [3, 4]), (b"what?", [0, 1])])
async def test_it_goes_on_where_the_last_process_was(data: bytes, expected: list[int]) -> None:
    store = FakeStore()
    await store.state_put("rollout/next", data)
    made = own(Requests(["a"]), None, store)
    await made.start()
    assert await made.take(2) == expected
