"""Against forgetting: rollout, curator and curriculum as the daemon joins them, with traffic on one kind of task."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
import trio

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.kinds.clusters import cluster_of
from actors.messages import Attributed, Attribution, BatchOrder, Candidate, Trajectory
from actors.rollout.rollout import Rollout
from actors.rollout.settings import RolloutSettings
from actors.store import Store
from actors.system.streams import POLICY_CANDIDATE, TRAJECTORY_ATTRIBUTED
from tests.support.credited import attributed
from tests.support.driving import Driver
from tests.support.fakes import FakeContext, FakeEngine, FakeEnvironment, FakeRetriever, FakeStore
from tests.support.simulated_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.anyio
GOALS = ("book a flight", "cancel an order", "find a person")
TRAFFIC = cluster_of(GOALS[1])
UPDATES = 16


class ThreeKinds(FakeEnvironment):
    """One task in three is of each kind."""

    def sample(self, seed: int, split, families: str | None):
        return msgspec.structs.replace(super().sample(seed, split, families), goal=GOALS[seed % 3])


class Loop:
    """Updates with, or without, a sandbox."""

    def __init__(self, store: Store, path: Path, **settings) -> None:
        rules = CuratorSettings(**{"group_size": 4, "groups_per_batch": 8, "production_per_batch": 8, **settings})
        curriculum = rules.curriculum()
        self.curator = Curator(
            rules, store=store, batches=path, clock=lambda: 0.0, curriculum=curriculum, exam=lambda key: False
        )
        self.driver, self.store, self.version = Driver(self.curator, store), store, 0
        self.own = FakeStore()
        self.rollout = Rollout(
            RolloutSettings(groups=8, group_size=4, system="desk"),
            store=self.own,
            engine=FakeEngine(skill={0: 0.5}),
            environment=ThreeKinds(),
            retriever=FakeRetriever(),
            clock=trio.current_time,
            rng=random.Random(0),
            planner=curriculum,
        )
        self.reasons: Counter[str] = Counter()

    async def played(self) -> list[Attributed]:
        """One round of the sandbox, judged."""
        context = FakeContext(self.own)
        await self.rollout.start()
        async with anyio.create_task_group() as group:
            group.start_soon(self.rollout.run, context)
            await anyio.sleep(10)
            context.draining.set()
        runs = [o.message for r in context.results for o in r.outputs if isinstance(o.message, Trajectory)]
        return [
            Attributed(
                id=run.id,
                trajectory=msgspec.structs.replace(run, min_version=self.version, max_version=self.version),
                attribution=Attribution(labels=(), judge="j", rubric="r"),
                cluster=cluster_of(run.goal),
            )
            for run in runs
        ]

    def asked(self) -> list[Attributed]:
        """What agents did meanwhile: always the same kind of task."""
        return [
            attributed(
                f"p{self.version}-{n}", goal=GOALS[1], outcome=float(n % 2), min_version=self.version,
                max_version=self.version,
            )
            for n in range(8)
        ]  # fmt: skip

    async def update(self, items: list[Attributed]) -> Counter[str]:
        """Clusters of what was drawn for the order, equal groups included; the order is answered."""
        await self.store.save(items)
        (order,) = await self.driver.feed(TRAJECTORY_ATTRIBUTED, *items)
        assert isinstance(order, BatchOrder)
        clusters = Counter(cluster_of(one.trajectory.goal) for one in items if one.trajectory.source == "sandbox")
        for item in items:
            clusters[cluster_of(item.trajectory.goal)] += (
                item.id in order.trajectories and item.trajectory.source == "production"
            )
        self.version += 1
        candidate = Candidate(
            id=f"v{self.version}", version=self.version, parent=self.version - 1, path="", files=(), manifest="",
            batch_ids=(order.id,),
        )  # fmt: skip
        assert await self.driver.feed(POLICY_CANDIDATE, candidate) == []
        return clusters


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    made = Store(store_url, clock=lambda: 0.0)
    await made.open()
    yield made
    await made.aclose()


async def test_with_a_sandbox_a_quarter_of_every_batch_is_of_the_kinds_that_nobody_asks_for(
    store: Store, tmp_path: Path
) -> None:
    loop = Loop(store, tmp_path)
    await loop.curator.start()
    batches = [await loop.update([*await loop.played(), *loop.asked()]) for _ in range(UPDATES)]
    late = batches[4:]
    for clusters in late:
        assert clusters.total() - clusters[TRAFFIC] >= 0.25 * clusters.total()
    assert sum(clusters[TRAFFIC] for clusters in late) > 0.5 * sum(clusters.total() for clusters in late)
    others = sum(late, Counter())
    assert min(others[cluster_of(goal)] for goal in GOALS) > 0.08 * others.total(), "each of them"
    assert loop.curator.figures["replay_missing"] == 0


async def test_without_replay_the_sandbox_follows_traffic(store: Store, tmp_path: Path) -> None:
    loop = Loop(store, tmp_path, replay_share=0.0, mix_share=0.0)
    await loop.curator.start()
    batches = [await loop.update([*await loop.played(), *loop.asked()]) for _ in range(UPDATES)]
    late = sum(batches[8:], Counter())
    assert late[TRAFFIC] == late.total(), "as soon as the kinds are known"


async def test_without_a_sandbox_what_is_missing_is_counted_and_the_batch_is_not_filled_with_inventions(
    store: Store, tmp_path: Path
) -> None:
    loop = Loop(store, tmp_path, groups_per_batch=0)
    await loop.curator.start()
    batches = [await loop.update(loop.asked()) for _ in range(UPDATES)]
    assert [set(clusters) for clusters in batches] == [{TRAFFIC}] * UPDATES
    figures = loop.curator.figures
    assert (figures["drawn"], figures["drawn_elsewhere"]) == (8 * UPDATES, 0)
    assert figures["replay_missing"] == 2 * UPDATES


async def test_without_a_sandbox_what_waits_of_other_kinds_has_its_quarter(store: Store, tmp_path: Path) -> None:
    loop = Loop(store, tmp_path, groups_per_batch=0)
    await loop.curator.start()
    await loop.update(loop.asked())
    rare = [attributed(f"r{n}", goal=GOALS[2], outcome=float(n % 2), min_version=1) for n in range(4)]
    clusters = await loop.update([*loop.asked(), *rare])
    assert clusters[cluster_of(GOALS[2])] >= 2
