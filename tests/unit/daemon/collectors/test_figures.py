"""What a figure is worth; that each is exported is asked of real processes (tests/peers/test_prometheus.py)."""

import json
import time
from pathlib import Path
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry

from actors.credit.attributor import Attributor
from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import Swapper
from actors.messages import Attribution, Exchange, Message, Serving, Step, StepLabel, Trajectory
from actors.monitoring.sentinel import Sentinel
from actors.system.actor import Received
from actors.system.streams import TRAJECTORY_CLOSED
from daemon.api.control import _json
from daemon.collectors.parts import attributor_figures, fleet_figures, sentinel_figures
from daemon.figures import Figures
from tests.support.fakes import Clock, FakeEngine, FakeRunner, FakeStore
from tests.support.keys import key_pair
from tests.support.travelling import plays

pytestmark = pytest.mark.anyio


class Judge:
    """Finds everything good, for 10 tokens."""

    name, rubric = "kind", "1"

    async def label(self, trajectory: Trajectory) -> Attribution:
        labels = (StepLabel("GOOD"),) * len(trajectory.steps)
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric, tokens=10, cost=0.25)


async def test_what_a_judge_did_and_cost_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.credit.attributor.BLIND_SHARE", 1.0)
    attributor = Attributor(tokens_per_day=2500, concurrency=1, judge=Judge())
    registry = CollectorRegistry()
    # A hundred twice, once of it blind; of the next hundred labels go before trials.
    batch = [Received(p.trajectory.id, TRAJECTORY_CLOSED, p.trajectory) for p in plays(200)]
    await attributor.handle(batch[:100])
    await attributor.handle(batch[100:])
    registry.register(Figures(attributor_figures, attributor))

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"evolved_attributor_{name}", labels) or 0.0

    judged, cached = (value("trajectories_total", by=who) for who in ("judged", "cached"))
    abstained = value("abstained_total", reason="budget")
    assert min(judged, abstained) > 0
    assert judged + cached + abstained == value("lag_seconds_count") == 200
    assert (value("spent", what="tokens"), value("spent", what="money")) == (2500.0, 62.5)
    assert (value("budget_used_up"), value("judge_away")) == (1.0, 0.0)
    # It knows nothing: whatever it saw, it found good.
    assert value("weight", judge="kind", rubric="1", tenant="*") == 0.0
    (page,) = [page for page in json.loads(_json(attributor.report()).body)["judges"] if page["tenant"] == "*"]
    assert (page["tokens"], page["outcomes"]["auc"]) == (2500, 0.5)


async def test_an_engine_that_is_away_has_no_version(tmp_path: Path) -> None:
    engines = {"a": FakeEngine("a"), "b": FakeEngine("b")}
    key, keys = key_pair(tmp_path / "keys")
    swapper = Swapper(
        canary=CanarySettings(), store=FakeStore(), engines=engines, runner=FakeRunner(*engines.values()),
        versions=tmp_path, key=key, keys=keys, clock=Clock(),
    )  # fmt: skip
    engines["b"].down = True
    await swapper.start()
    await swapper.tick()
    registry = CollectorRegistry()
    registry.register(Figures(fleet_figures, swapper))
    assert [registry.get_sample_value("evolved_engine_version", {"engine": name}) for name in engines] == [0.0, -1.0]
    assert registry.get_sample_value("evolved_engine_stable_since_timestamp_seconds") == Clock().now


class Watch:
    """A sentinel of one engine, and what is scraped of it."""

    def __init__(self) -> None:
        self.engine, self.registry = FakeEngine("serving"), CollectorRegistry()
        self.sentinel = Sentinel(store=FakeStore(), engines={"serving": self.engine}, clock=time.time)
        self.registry.register(Figures(sentinel_figures, self.sentinel))

    async def serve(self, version: int, since: float) -> None:
        serving = Serving(
            id=f"s{version}", engine="serving", version=version, previous=version - 1, path="",
            result="swapped" if version else "started", since=since,
        )  # fmt: skip
        await self.hear(serving)

    async def hear(self, *messages: Message) -> None:
        await self.sentinel.handle([Received(message.id, "any", message) for message in messages])

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"evolved_{name}", labels)


async def test_what_the_sentinel_found_and_did_is_counted() -> None:
    watch = Watch()
    for version, status in ((0, 200), (1, 502)):
        now = time.time()
        await watch.serve(version, now)
        for number in range(120):
            call = Exchange(
                id=f"x{version}-{number}", endpoint="chat", engine="serving", started=now + 1, duration=0.0,
                status=status, request=b"", response=b"",
            )  # fmt: skip
            await watch.hear(call)
    watch.engine.down = True
    await watch.sentinel.tick()
    found = {"action": "rollback", "cause": "engine-errors"}
    assert watch.value("sentinel_value", monitor="engine", value="serving_failed_after") == 1.0
    assert watch.value("sentinel_findings_total", **found) == 1.0
    assert watch.value("sentinel_last_finding_seconds", **found) is not None
    assert watch.value("sentinel_engines_unreachable") == 1.0


async def test_success_is_by_place_and_below_the_first_once_it_is_shown_whatever_the_sandbox_does() -> None:
    watch = Watch()

    def run(version: int, number: int, solved: bool | None, source: Literal["production", "sandbox"]) -> Trajectory:
        at = 1000.0 * version + number
        return Trajectory(
            id=f"{source}{version}-{number}", source=source, goal="book the room", steps=(Step(exchange_id=""),),
            outcome=None if solved is None else float(solved), started=at, ended=at + 0.5, min_version=version,
            max_version=version,
        )  # fmt: skip

    for version, solved in ((0, 9), (1, 9), (2, 4)):
        await watch.serve(version, 1000.0 * version)
        for number in range(100):
            await watch.hear(
                run(version, number, number % 10 < solved, "production"),
                run(version, number, True, "sandbox"),
                run(version, 500 + number, None, "production"),
            )
        assert watch.value("sentinel_value", monitor="first-version", value="below") == float(version == 2)
    for place, number, success in (("first", 0, 0.9), ("previous", 1, 0.9), ("serving", 2, 0.4)):
        figures = [watch.value(f"version_{name}", place=place) for name in ("number", "outcomes", "success")]
        assert figures == [float(number), 100.0, success]
        low, high = (watch.value(f"version_success_{side}", place=place) or 0.0 for side in ("low", "high"))
        assert low < success < high
