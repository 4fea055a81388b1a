"""The daemon as it is put together: which tasks it has with which settings, and that it can be scraped."""

import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors.store import Store
from actors.system.metrics import SystemMetrics
from actors.system.nats_bus import NatsBus
from adapters.weights import WeightSource
from daemon.composition.cluster import Member
from daemon.composition.engines import engine_clients
from daemon.composition.resources import Resources
from daemon.composition.service import build
from daemon.settings.config import Config

pytestmark = pytest.mark.anyio
ALWAYS = {
    "leadership", "live", "shipper", "assembler", "attributor", "attributor-2", "navigator", "experiencer", "curator",
    "gatekeeper", "swapper", "kill_switch", "sentinel", "housekeeping", "control",
}  # fmt: skip
SANDBOX = {"environment": "travel"}


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, set[str]()),
        ({"questioner": {"enabled": True}}, set[str]()),
        ({"sandbox": SANDBOX}, {"failures", "rollout"}),
        ({"sandbox": SANDBOX, "questioner": {"enabled": True}}, {"failures", "rollout", "questioner"}),
        ({"intake": {"otlp": True}}, {"intake"}),
    ],
)
async def test_the_settings_say_which_tasks_there_are(
    tmp_path: Path, settings: dict[str, Any], more: set[str]
) -> None:  # fmt: skip
    config = msgspec.convert({"state_dir": str(tmp_path), **settings}, Config)
    async with AsyncExitStack() as stack:
        store = Store(config.store_url, clock=time.time)
        await store.open()
        stack.push_async_callback(store.aclose)
        engines = engine_clients(config)
        for engine in engines.values():
            await stack.enter_async_context(engine)
        registry = CollectorRegistry()
        parts = Resources(
            config, store, cast("NatsBus", object()), engines, cast("WeightSource", object()),
            Member(config.cluster, "http://here", sole=True), stack, registry, SystemMetrics(registry),
        )  # fmt: skip
        supervisor = build(config, parts)
        assert {task.name for task in supervisor.state().actors} == ALWAYS | more
        assert "evolved_leader 0.0" in generate_latest(registry).decode()
