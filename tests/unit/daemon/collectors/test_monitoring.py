"""The sentinel's metrics: every monitor's value, and what was done."""

import re
import time
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors.messages import Exchange, Serving, Step, Trajectory
from actors.monitoring.sentinel import Sentinel, SentinelSettings
from actors.system.actor import Received
from daemon.collectors.figures import Figures
from daemon.collectors.monitoring import sentinel_figures
from tests.support.fakes import FakeEngine, FakeStore

pytestmark = pytest.mark.anyio


async def test_every_value_and_what_was_done_is_scraped() -> None:
    engine = FakeEngine("serving")
    sentinel = Sentinel(SentinelSettings(), store=FakeStore(), engines={"serving": engine}, clock=time.time)
    registry = CollectorRegistry()
    registry.register(Figures(sentinel_figures, sentinel))

    async def hear(message: Exchange | Serving) -> None:
        await sentinel.handle([Received(message.id, "any", message)])

    for version in (0, 1):
        now = time.time()
        await hear(
            Serving(
                id=f"s{version}", engine="serving", version=version, previous=version - 1, path="", result="swapped",
                since=now,
            )
        )  # fmt: skip
        for number in range(120):
            await hear(
                Exchange(
                    id=f"x{version}-{number}", endpoint="chat", engine="serving", started=now + 1, duration=0.0,
                    status=502 if version else 200, request=b"", response=b"",
                )
            )  # fmt: skip
    engine.down = True
    await sentinel.tick()
    text = generate_latest(registry).decode()
    assert 'evolved_sentinel_value{monitor="engine",value="serving_failed_after"} 1.0' in text
    assert 'evolved_sentinel_findings_total{action="rollback",cause="engine-errors"} 1.0' in text
    assert 'evolved_sentinel_last_finding_seconds{action="rollback",cause="engine-errors"}' in text
    assert "evolved_sentinel_engines_unreachable 1.0" in text


async def test_success_is_by_place_and_below_the_first_once_it_is_shown_whatever_the_sandbox_does() -> None:
    sentinel = Sentinel(
        SentinelSettings(), store=FakeStore(), engines={"serving": FakeEngine("serving")}, clock=time.time
    )
    registry = CollectorRegistry()
    registry.register(Figures(sentinel_figures, sentinel))

    async def hear(*messages: Serving | Trajectory) -> None:
        await sentinel.handle([Received(message.id, "any", message) for message in messages])

    def run(version: int, number: int, solved: bool | None, source: Literal["production", "sandbox"]) -> Trajectory:
        at = 1000.0 * version + number
        return Trajectory(
            id=f"{source}{version}-{number}", source=source, goal="book the room", steps=(Step(exchange_id=""),),
            outcome=None if solved is None else float(solved), started=at, ended=at + 0.5, min_version=version,
            max_version=version,
        )  # fmt: skip

    for version, solved in ((0, 9), (1, 9), (2, 4)):
        await hear(
            Serving(
                id=f"s{version}", engine="serving", version=version, previous=version - 1, path="",
                result="swapped" if version else "started", since=1000.0 * version,
            )
        )  # fmt: skip
        for number in range(100):
            await hear(
                run(version, number, number % 10 < solved, "production"),
                run(version, number, True, "sandbox"),
                run(version, 500 + number, None, "production"),
            )
        figures = generate_latest(registry).decode()
        shown = float(version == 2)
        assert f'evolved_sentinel_value{{monitor="first-version",value="below"}} {shown}' in figures
    for place, number, success in (("first", 0, 0.9), ("previous", 1, 0.9), ("serving", 2, 0.4)):
        assert f'evolved_version_number{{place="{place}"}} {float(number)}' in figures
        assert f'evolved_version_outcomes{{place="{place}"}} 100.0' in figures
        assert f'evolved_version_success{{place="{place}"}} {success}' in figures
        low, high = (
            float(figures.split(f'evolved_version_success_{side}{{place="{place}"}} ')[1].split()[0])
            for side in ("low", "high")
        )
        assert low < success < high
    assert len(re.findall(r"^evolved_version_success\{", figures, re.M)) == 3
