"""Tasks that are made here, as the daemon puts them together and shows them."""

import random
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from actors.curation.curriculum import Curriculum
from actors.kinds.clusters import cluster_of
from actors.messages import Task
from actors.rollout.rollout import Rollout
from actors.rollout.settings import RolloutSettings
from actors.store import Store
from adapters.environments.travel import TravelDesk
from daemon.cli.curriculum import show
from daemon.cli.main import main
from daemon.collectors.figures import Figures
from daemon.composition.tasks import Tasks, TaskSettings, rollout_figures, task_figures
from tests.support.fakes import FakeEngine

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Bench:
    def __init__(self, store: Store) -> None:
        self.store, self.curriculum, self.engine = store, Curriculum(), FakeEngine()
        self.tasks = Tasks(
            TaskSettings(), store=store, environment=TravelDesk(), families="AB", curriculum=self.curriculum,
            clock=lambda: 1_000.0, engine=self.engine, rng=random.Random(0),
        )  # fmt: skip
        self.rollout = Rollout(
            RolloutSettings(), store=store, engine=self.engine, environment=self.tasks.environment, retriever=None,
            clock=lambda: 1_000.0, rng=random.Random(0), mixture=self.tasks.mixture,
        )  # fmt: skip

    async def get(self, path: str) -> dict:
        transport = httpx.ASGITransport(Starlette(routes=self.tasks.routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return (await client.get(path)).json()


@pytest.fixture
async def bench(store_url: str) -> AsyncIterator[Bench]:
    store = Store(store_url, clock=lambda: 1_000.0)
    await store.open()
    yield Bench(store)
    await store.aclose()


async def test_the_pool_and_the_standings_are_shown(bench: Bench, capsys) -> None:
    goal = "Find a flight to:Rome."
    await bench.store.offer([Task(id="t1", goal=goal, environment="travel", origin="production")])
    (state,) = await bench.store.task_states()
    await bench.store.mark_tasks([msgspec.structs.replace(state, state="set_aside", reason="no attempt succeeds")])
    bench.curriculum.observe("sandbox", cluster_of(goal), 0.0)
    bench.curriculum.urge(cluster_of(goal))
    pool = await bench.get("/api/tasks?state=set_aside")
    assert [(one["id"], one["reason"], one["difficulty"]) for one in pool["tasks"]] == [
        ("t1", "no attempt succeeds", 0.5)
    ]
    assert (await bench.get("/api/tasks?state=retired"))["tasks"] == []
    standings = await bench.get("/api/curriculum")
    (first,) = standings["clusters"]
    assert (first["cluster"], first["urged"], first["success"]) == (cluster_of(goal), True, pytest.approx(1 / 3))
    show({**standings, **pool}, tasks=True)
    printed = capsys.readouterr().out
    assert goal in printed
    assert "traffic fails" in printed


async def test_what_was_counted_is_scraped(bench: Bench) -> None:
    registry = CollectorRegistry()
    registry.register(Figures(task_figures, bench.tasks))
    registry.register(Figures(rollout_figures, bench.rollout))
    await bench.store.offer([Task(id="t1", goal="Find a flight to:Rome.", environment="travel", origin="production")])
    await bench.tasks.mixture.draw(8)
    bench.rollout.lost["group_late"] = 3
    text = generate_latest(registry).decode()
    assert 'evolved_task_events_total{what="offered_new"} 1.0' in text
    assert 'evolved_task_events_total{what="mixture_production"} 1.0' in text
    assert 'evolved_rollout_lost_total{reason="group_late"} 3.0' in text


def test_without_a_daemon_the_command_says_what_to_do(capsys) -> None:
    assert main(["curriculum", "--set", "control.port=1"]) == 2
    assert "evolved run" in capsys.readouterr().err
