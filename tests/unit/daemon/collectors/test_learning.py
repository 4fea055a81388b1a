"""Curator, gate and swapper together say what learning waits for: in the status, and as metrics."""

from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings
from actors.deployment.canary import FIRST_LOOK, CanarySettings
from actors.deployment.fleet import EngineView, Fleet
from actors.messages import Attributed, BatchOrder, Candidate, Message, Step
from actors.store import Store
from actors.system.streams import POLICY_CANDIDATE, TRAJECTORY_ATTRIBUTED
from daemon.cli.output import screen
from daemon.cli.status import show
from daemon.collectors.learning import LearningView, learning_figures
from daemon.figures import Figures
from tests.support.credited import attributed, group
from tests.support.driving import Driver
from tests.unit.actors.gate.made import Bench as Gate

pytestmark = pytest.mark.anyio


class Desk:
    """A real curator and gatekeeper on one clock, and a fleet to set."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.gate, self.fleet, self.halted = store, Gate(path), Fleet(), ""
        self.clock = self.gate.clock
        settings = CuratorSettings(groups_per_batch=0, production_per_batch=2, max_staleness=0)
        self.curator = Curator(
            settings, store=store, batches=path / "batches", clock=self.clock, exam=lambda key: key.startswith("exam")
        )
        self.driver = Driver(self.curator, store)
        self.view = LearningView(
            curator=self.curator, gatekeeper=self.gate.gate, fleet=lambda: self.fleet,
            canary=CanarySettings(runs=50, deadline_seconds=3600.0), halted=lambda: self.halted,
            clock=self.clock,
        )  # fmt: skip
        self.registry = CollectorRegistry()
        self.registry.register(Figures(learning_figures, self.view))

    async def credit(self, *items: Attributed) -> list[Message]:
        await self.store.save(items)
        return await self.driver.feed(TRAJECTORY_ATTRIBUTED, *items)

    async def train(self, order: Message, version: int, **fields: object) -> None:
        assert isinstance(order, BatchOrder)
        made = Candidate(
            id=f"v{version}", version=version, parent=version - 1, path="", files=(), manifest="",
            batch_ids=(order.id,), created=self.clock.now, **fields,
        )  # fmt: skip
        await self.driver.feed(POLICY_CANDIDATE, made)

    async def looked(self) -> "Desk":
        """The agents' runs have been asked for again."""
        self.clock.now += 31.0
        await self.driver.tick()
        return self

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def shown(self, **fields: object) -> str:
        out = StringIO()
        status = {
            "learning": self.view.status(), "frozen": False, "serving": None, "trained": 0, "counts": {}, "actors": [],
            "success": {"rate": None, "low": 0.0, "high": 1.0, "n": 0}, "shares": {"production": 1.0, "sandbox": 0.0},
            **fields,
        }  # fmt: skip
        show(status, screen(out))
        return out.getvalue()


@pytest.fixture
async def desk(tmp_path: Path, store_url: str) -> AsyncIterator[Desk]:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    made = Desk(store, tmp_path)
    await made.gate.gate.start()
    await made.curator.start()
    yield made
    await store.aclose()


def run(key: str, agent: str = "desk", **fields: object) -> Attributed:
    return attributed(key, steps=(Step(exchange_id=f"x-{key}", role=f"{agent}#1"),), **fields)


async def test_every_run_is_in_the_effect_once(desk: Desk) -> None:
    await desk.credit(run("n", outcome=None), run("exam-1"), run("t", trainable=False, why_not="temperature 0"))
    (order,) = await desk.credit(run("a"), run("b"))
    await desk.train(order, 1, no_gradient={"a": "zero_advantage"})
    (order,) = await desk.credit(run("c", min_version=1), run("d", min_version=1))
    await desk.credit(*group("g", [0.0, 1.0]))
    effect = (await desk.looked()).view.status()["effect"]
    assert (effect["runs"], effect["reported"], effect["learned"]) == (7, 6, 1)
    assert effect["reasons"] == {
        "are being trained on": 2, "have no outcome yet": 1, "held out": 1, "temperature 0": 1, "zero_advantage": 1
    }  # fmt: skip
    assert effect["learned"] + sum(effect["reasons"].values()) == effect["runs"]
    assert effect["sentence"].startswith(
        "1 of 7 runs of production (14 %) changed the weights; of the rest 2 are being"
    )
    assert effect["no_gradient"] == {"zero_advantage": 1}


async def test_at_the_limit_it_waits_for_the_verdict_of_the_gate(desk: Desk) -> None:
    (order,) = await desk.credit(run("a"), run("b"))
    await desk.train(order, 1)
    desk.gate.trial.says = "wait"
    await desk.gate.train(1, 0)
    await desk.credit(run("c"))
    status = desk.view.status()
    assert (status["waits_for"], status["have"], status["need"]) == ("verdict", 5, 32)
    assert (status["head"], status["serving"], status["lead"]) == (1, [0], 1)
    assert "The verdict on v1 waits since" in status["sentence"]
    await desk.gate.tick()
    await desk.gate.tick()
    rises = {what: desk.metric("evolved_gatekeeper_records_total", what=what) for what in ("waited", "hold", "promote")}
    assert rises == {"waited": 3, "hold": 0, "promote": 0}, "a first one is a rise as well"


async def test_at_the_limit_it_waits_for_the_trial_in_production(desk: Desk) -> None:
    (order,) = await desk.credit(run("a"), run("b"))
    await desk.train(order, 1)
    await desk.credit(run("c"))
    now = desk.clock.now
    engine = EngineView(version=1, since=now, reachable=True, paused=False, canary_share=1.0, note="")
    desk.fleet = Fleet(
        stable=0, canary=1, canary_engine="a", canary_since=now, canary_judged=7, engines={"a": engine}
    )  # fmt: skip
    status = desk.view.status()
    assert (status["waits_for"], status["have"], status["need"]) == ("trial", 7, 50)
    desk.clock.now += 3601.0
    status = desk.view.status()
    assert (status["have"], status["need"]) == (7, FIRST_LOOK)
    assert "at the latest" not in status["sentence"], "its deadline has passed, and it goes on all the same"


async def test_the_state_is_a_metric_and_what_it_waits_for_too(desk: Desk) -> None:
    await desk.credit(run("n", outcome=None))
    desk.clock.now += 7200.0
    await desk.looked()
    assert [desk.metric("evolved_learning_state", state=state) for state in ("waiting", "moving")] == [1.0, 0.0]
    assert desk.metric("evolved_learning_waits_seconds", **{"for": "outcomes"}) == 7231.0
    (order,) = await desk.credit(run("a"), run("b"))
    await desk.train(order, 1, no_gradient={"a": "zero_advantage"})
    assert desk.metric("evolved_learning_runs_total", effect="learned") == 1
    assert desk.metric("evolved_learning_runs_total", effect="zero_advantage") == 1
    assert desk.metric("evolved_learning_state", state="moving") == 1.0
    await desk.credit(run("c", min_version=1), run("d", min_version=1))
    assert desk.metric("evolved_learning_waits_seconds", **{"for": "learner"}) == 0.0


async def test_before_the_books_are_read_it_does_not_know_and_the_kill_switch_freezes(desk: Desk) -> None:
    desk.halted = "incident 4711"
    assert desk.view.status()["sentence"] == "The kill switch is on: incident 4711."
    assert desk.metric("evolved_learning_state", state="frozen") == 1.0
    desk.curator.started = False
    assert (desk.view.status(), desk.metric("evolved_learning_state", state="waiting")) == ({}, None)
    assert "not known yet" in desk.shown()
    assert "frozen" in desk.shown(frozen=True)


async def test_status_prints_sentence_remedy_effect_and_the_busiest_agents(desk: Desk) -> None:
    await desk.credit(run("n", outcome=None))
    assert "what to change: report how runs went: POST /v1/feedback" in (await desk.looked()).shown()
    (order,) = await desk.credit(run("a"), run("b"))
    await desk.train(order, 1, no_gradient={"a": "zero_advantage"})
    await desk.credit(run("t", "[red]tickets[/red]", trainable=False, why_not="[bold]odd[/bold]"))
    text = (await desk.looked()).shown()
    for words in (
        "moving: v1 was trained at", "1 of 4 runs of production (25 %) changed the weights",
        "1 runs ordered: 1 went as was expected of them", "Learning: 1 of 2 runs ordered changed the weights",
        "default, [red]tickets[/red]", "1 [bold]odd[/bold]",
    ):  # fmt: skip
        assert words in text
    for number in range(8):
        await desk.credit(run(f"r{number}", f"agent-{number}", outcome=None))
    assert "2 more agents, less busy; there is learning from 0 of them (--json)" in (await desk.looked()).shown()
