"""The serving engines as metrics."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors.deployment.swapper import Swapper, SwapperSettings
from daemon.collectors.figures import Figures
from daemon.collectors.fleet import fleet_figures
from tests.support.fakes import Clock, FakeEngine, FakeRunner, FakeStore
from tests.support.keys import key_pair


@pytest.mark.anyio
async def test_each_engine_has_its_version_and_one_that_is_away_has_none(tmp_path: Path) -> None:
    engines = {"a": FakeEngine("a"), "b": FakeEngine("b")}
    key, keys = key_pair(tmp_path / "keys")
    swapper = Swapper(
        SwapperSettings(), store=FakeStore(), engines=engines, runner=FakeRunner(*engines.values()), versions=tmp_path,
        key=key, keys=keys, clock=Clock(),
    )  # fmt: skip
    engines["b"].down = True
    await swapper.start()
    await swapper.tick()
    registry = CollectorRegistry()
    registry.register(Figures(fleet_figures, swapper))
    said = generate_latest(registry).decode()
    assert 'evolved_engine_version{engine="a"} 0.0' in said
    assert 'evolved_engine_version{engine="b"} -1.0' in said
    assert "evolved_swapper_unsigned_total 0.0" in said
    assert 'evolved_swap_paused_seconds_count{engine="a"} 0.0' in said
    assert f"evolved_engine_stable_since_timestamp_seconds {Clock().now}" in said
