"""The sentinel's metrics: every monitor's value, and what was done."""

import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors.messages import Exchange, Serving
from actors.monitoring.sentinel import Sentinel, SentinelSettings
from actors.system.actor import Received
from daemon.collectors.figures import Figures
from daemon.collectors.monitoring import sentinel_figures
from tests.support.fakes import FakeEngine, FakeStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "trio"


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
