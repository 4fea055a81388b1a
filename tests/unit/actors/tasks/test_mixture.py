"""Which tasks that were made here are played, how much they count, and what becomes of those that teach nothing."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from actors.curation.curriculum import Curriculum
from actors.kinds.clusters import cluster_of
from actors.messages import Task
from actors.store import Store
from actors.store.tasks import TaskState
from actors.tasks import mixture as mixing
from actors.tasks.mixture import Mixture
from actors.tasks.reference_calls import ReferenceCall, SyntheticTaskSpec

pytestmark = pytest.mark.anyio


class Bench:
    """A pool of which every cluster is worth the same, unless told otherwise."""

    def __init__(self, store: Store, share: float = 0.5) -> None:
        self.store, self.now = store, 1_000.0
        self.mixture = Mixture(share, book=store, curriculum=Curriculum(), clock=lambda: self.now)

    async def offer(self, *names: str, origin: str = "production") -> None:
        await self.store.offer(
            [Task(id=name, goal=f"{name[0]} the order", environment="fake", origin=origin) for name in names]
        )

    async def drawn(self, count: int = 8) -> list[str]:
        return [play.task.id for play in await self.mixture.draw(count)]

    async def round(self, outcomes: Sequence[float], **fields) -> list[str]:
        names = await self.drawn()
        for name in names:
            await self.mixture.report(name, outcomes, **fields)
        self.now += 1.0
        return names

    async def state(self, name: str) -> TaskState:
        return {one.task.id: one for one in await self.store.task_states()}[name]


@pytest.fixture
def bench(store: Store, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(mixing, "_RETRY_SECONDS", 100.0)
    return Bench(store)


async def test_no_more_than_their_share_and_no_fewer_own_tasks_where_there_are_few(bench: Bench) -> None:
    await bench.offer("a1", "a2", "a3", "a4", "a5", "a6")
    assert len(await bench.drawn(8)) == 4
    assert len(await bench.drawn(8)) == 2
    assert bench.mixture.counts["short"] == 2


async def test_self_made_tasks_count_less_and_real_ones_that_failures_point_to_fully(bench: Bench) -> None:
    await bench.offer("made")
    await bench.offer("asked", origin="questioner")
    await bench.offer("real", origin="environment")
    scales = {play.task.id: play.scale for play in await bench.mixture.draw(8)}
    assert scales == {"made": 0.5, "asked": 0.5, "real": 1.0}
    assert bench.mixture.counts == {"production": 1, "questioner": 1, "environment": 1, "short": 1, "returned": 0}


async def test_a_task_is_in_one_round_at_a_time_and_each_round_has_a_name_of_its_own(bench: Bench) -> None:
    await bench.offer("a")
    (first,) = await bench.mixture.draw(8)
    assert await bench.mixture.draw(8) == []
    await bench.mixture.report("a", [0.0, 1.0])
    (second,) = await bench.mixture.draw(8)
    assert first.key != second.key
    await bench.mixture.report("a", [])
    (third,) = await bench.mixture.draw(8)
    assert len({first.key, second.key, third.key}) == 3


async def test_clusters_go_by_their_index_and_tasks_of_one_by_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.offer("a1", "a2", "b1", "b2", "b3", "b4")
    monkeypatch.setattr(Curriculum, "kind", lambda _, goal: cluster_of(goal))
    monkeypatch.setattr(Curriculum, "index", lambda _, name: 3.1 if name == cluster_of("b the order") else 1.0)
    assert sorted(await bench.round([0.0, 1.0])) == ["a1", "b1", "b2", "b3"]
    assert sorted(await bench.round([0.0, 1.0])) == ["a2", "b1", "b2", "b4"]


@pytest.mark.parametrize(("outcome", "reason"), [(1.0, "every attempt succeeds"), (0.0, "no attempt succeeds")])
async def test_a_task_whose_attempts_agree_is_set_aside_tried_again_ever_later_and_retired(
    bench: Bench, outcome: float, reason: str
) -> None:
    await bench.offer("a")
    tried: list[float] = []
    for _ in range(100):
        if await bench.round([outcome] * 4):
            tried.append(bench.now)
        else:
            bench.now += 9.0
    assert [round(later - before, -1) for before, later in pairwise(tried)] == [0, 100, 200, 400]
    last = await bench.state("a")
    assert (last.state, last.reason, last.tried, last.solved) == ("retired", reason, 20, int(20 * outcome))
    assert bench.mixture.counts["set_aside"] == 3
    assert (bench.mixture.counts["returned"], bench.mixture.counts["retired"]) == (3, 1)


async def test_a_task_that_is_always_lost_is_set_aside_and_an_engine_that_is_away_is_not_its_fault(
    bench: Bench,
) -> None:
    await bench.offer("a")
    for _ in range(5):
        assert await bench.round([], blamed=False) == ["a"]
    await bench.round([])
    await bench.round([])
    state = await bench.state("a")
    assert (state.state, state.reason, state.lost) == ("set_aside", "every attempt is lost", 2)
    assert await bench.drawn() == []


async def test_what_promises_to_teach_goes_first_but_not_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixing, "_AGREEING", 100)
    bench = Bench(store, share=0.125)
    await bench.offer("a1", "a2", "a3")
    outcomes = {"a1": [1.0] * 8, "a2": [0.0] * 8, "a3": [0.0, 1.0] * 4}
    played: list[str] = []
    for _ in range(30):
        (name,) = await bench.drawn()
        await bench.mixture.report(name, outcomes[name])
        bench.now += 1.0
        played.append(name)
    assert played[:3] == ["a1", "a2", "a3"]
    assert played.count("a3") > 3 * max(played.count("a1"), played.count("a2"))
    assert min(played.count("a1"), played.count("a2")) >= 2


async def test_where_no_attempt_succeeds_the_same_task_is_offered_ever_more_openly_told(bench: Bench) -> None:
    calls = (ReferenceCall("find", {"name": "Mia"}), ReferenceCall("win"))
    spec = SyntheticTaskSpec(base={"seed": 1}, base_goal="g", reference=calls, verifier="state", environment="fake")
    told = {"environment": "fake", "origin": "production", "spec": msgspec.to_builtins(spec)}
    await bench.store.offer([Task(id=name, goal=name, **told) for name in ("easy", "hard")])
    for _ in range(8):
        for name in await bench.drawn():
            await bench.mixture.report(name, [float(name == "easy")] * 2)
        bench.now += 1.0
    tasks = sorted((one.task for one in await bench.store.task_states()), key=lambda task: -task.difficulty)
    assert [task.goal for task in tasks] == [
        "easy", "hard", "hard\n(It takes find, then win.)", 'hard\n(It takes find {"name":"Mia"}, then win {}.)',
    ]  # fmt: skip
    worlds = [msgspec.structs.replace(spec, told=times) for times in (0, 0, 1, 2)]
    assert [SyntheticTaskSpec.of(task) for task in tasks] == worlds, "but for what is told they are the same"
    assert bench.mixture.counts["eased"] == 2
