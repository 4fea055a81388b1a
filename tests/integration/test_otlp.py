"""The OTLP receiver over real HTTP: recorded exports in, exchanges on the bus, and what else exporters are told."""

import contextlib
import gzip
import os
import random
import signal
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from prometheus_client import CollectorRegistry, generate_latest

from actors.messages import Exchange, Trajectory, decode
from actors.store import Store
from actors.system.bus import Bus
from actors.system.lifecycle import Lifecycle, Restart, Unit
from actors.system.runner import run_actor
from actors.system.runtime import SameLoopHost
from actors.system.streams import TRAFFIC_EXCHANGE, TRAJECTORY_CLOSED
from actors.trajectories.assembler import Assembler, AssemblerSettings
from adapters.redaction import RedactionSettings, Redactor
from daemon.collectors.figures import Figures
from daemon.ingest.otlp_receiver import (
    MAX_BODY_BYTES,
    MAX_REQUESTS,
    IntakeSettings,
    OtlpIntake,
    intake_figures,
)
from daemon.tap.keys import KeyRing, add_key
from tests.support.nats import PATIENT, opened_bus, persistently, running_broker
from tests.support.otlp import as_json, recorded
from tests.support.patience import until, within
from tests.support.stub_bus import StubBus

pytestmark = pytest.mark.anyio
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
REDACT = Redactor(RedactionSettings()).message
QUESTION = b"2+2 and 3+3?"
OTHER = b"call a@b.org!"
"""As long, so that no length in the protobuf changes; and personal."""


class Rig:
    def __init__(self, intake: OtlpIntake, unit: Unit, draining: anyio.Event) -> None:
        self.intake, self.unit, self._draining = intake, unit, draining
        self.client = httpx.AsyncClient(timeout=within())
        self.registry = CollectorRegistry()
        self.registry.register(Figures(intake_figures, intake))

    def listening(self, port: int) -> None:
        self.client.base_url = httpx.URL(f"http://127.0.0.1:{port}")

    async def post(self, data: bytes, headers: dict = PROTOBUF) -> httpx.Response:
        return await self.client.post("/v1/traces", content=data, headers=headers)

    def drain(self) -> None:
        self._draining.set()
        self.unit.interrupt()


@contextlib.asynccontextmanager
async def receiving(bus: Bus, *, keys: KeyRing | None = None, require_key=False, redact=REDACT) -> AsyncIterator[Rig]:
    ports: list[int] = []
    intake = OtlpIntake(
        IntakeSettings(port=0), bus, redact=redact, keys=keys, require_key=require_key, listening=ports.append
    )
    unit, draining = Unit("intake", intake.run, Restart()), anyio.Event()
    rig = Rig(intake, unit, draining)
    async with rig.client, anyio.create_task_group() as group:
        group.start_soon(intake.run, Lifecycle(unit, draining, lambda: None))
        await until(lambda: ports and answers(ports[0]), "it listens")
        rig.listening(ports[0])
        yield rig
        rig.drain()


async def answers(port: int) -> bool:
    try:
        await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
    except OSError:
        return False
    return True


def published(bus: StubBus) -> list[Exchange]:
    assert all(item.subject == TRAFFIC_EXCHANGE for item in bus.published)
    found = [decode(item.data) for item in bus.published]
    return sorted((call for call in found if isinstance(call, Exchange)), key=lambda call: call.started)


async def test_recorded_exports_become_exchanges_under_the_same_ids_however_often_they_come() -> None:
    bus = StubBus()
    async with receiving(bus) as rig:
        packed = gzip.compress(as_json(recorded("span")))
        answer = await rig.post(packed, {**JSON, "content-encoding": "gzip"})
        assert (answer.status_code, answer.json()) == (200, {})
        assert answer.headers["content-type"] == "application/json"
        for mode, number in (("span", 3), ("openinference", 7)):
            for _ in range(2):
                answer = await rig.post(recorded(mode))
                assert (answer.status_code, answer.content) == (200, b"")
            assert len({item.id for item in bus.published}) == number
        assert (await rig.post(recorded("silent"))).status_code == 200
        assert rig.intake.counts["no_content"] == 3
        text = generate_latest(rig.registry).decode()
    assert {call.response_id for call in published(bus)} >= {"chatcmpl-1", "chatcmpl-2", "chatcmpl-3"}
    assert 'evolved_otlp_calls_total{what="published"} 17.0' in text
    assert 'evolved_otlp_exports_total{status="200"} 6.0' in text


async def test_what_is_personal_is_taken_out_before_the_bus_and_records_without_ids_are_a_partial_success() -> None:
    bus, data = StubBus(), recorded("span")
    key = as_json(data).split(b'"traceId": "')[1][:32]
    async with receiving(bus) as rig:
        assert (await rig.post(data.replace(QUESTION, OTHER[:12]))).status_code == 200
        answer = await rig.post(data.replace(bytes.fromhex(key.decode()), bytes(16)))
    first, *_ = published(bus)
    assert b"a@b.or" not in b"".join(item.data for item in bus.published)
    assert (first.redacted, first.finds["email"]) == (("prompt",), 1)
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, told.rejected_spans) == (200, 4)
    assert "trace id" in told.error_message


async def test_what_cannot_be_taken_is_refused_with_the_status_that_exporters_know() -> None:
    bus = StubBus()
    data = recorded("span")
    async with receiving(bus) as rig:
        refused = [
            (400, await rig.post(b"no protobuf")),
            (400, await rig.post(data, {**PROTOBUF, "content-encoding": "gzip"})),
            (413, await rig.post(bytes(MAX_BODY_BYTES + 1))),
            (413, await rig.post(gzip.compress(bytes(MAX_BODY_BYTES + 1)), {**PROTOBUF, "content-encoding": "gzip"})),
            (415, await rig.post(data, {"content-type": "text/plain"})),
            (415, await rig.post(data, {**PROTOBUF, "content-encoding": "br"})),
            (404, await rig.client.post("/v1/logs", content=data, headers=PROTOBUF)),
            (405, await rig.client.get("/v1/traces")),
            (400, await rig.post(data, {**PROTOBUF, "host": "evil.example"})),
        ]

        async def endless():
            for _ in range(20):
                yield bytes(1 << 20)

        refused.append((413, await rig.client.post("/v1/traces", content=endless(), headers=PROTOBUF)))
    assert [answer.status_code for _, answer in refused] == [status for status, _ in refused]
    assert bus.published == []


async def test_while_the_bus_takes_nothing_exporters_are_told_to_come_again_and_nothing_is_lost() -> None:
    bus = StubBus()
    data = recorded("span")
    async with receiving(bus) as rig:
        bus.down = True
        refused = await rig.post(data)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        bus.down = False
        assert (await rig.post(data)).status_code == 200
        assert len(published(bus)) == 3
    assert len(published(bus)) == 3


async def test_too_many_exports_at_once_are_told_to_come_again() -> None:
    data = recorded("span")
    under_way, go_on = anyio.Event(), threading.Event()

    def held(call: Exchange) -> Exchange:
        anyio.from_thread.run_sync(under_way.set)
        go_on.wait(within())
        return call

    async with receiving(StubBus(), redact=held) as rig:
        async with anyio.create_task_group() as group:
            for _ in range(MAX_REQUESTS):
                group.start_soon(rig.post, data)
            await under_way.wait()
            await until(lambda: rig.intake.working == MAX_REQUESTS, "all are under way")
            answer = await rig.post(b"")
            go_on.set()
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert (await rig.post(b"")).status_code == 200


async def test_a_key_says_whose_calls_they_are(tmp_path: Path) -> None:
    path, bus = tmp_path / "keys.json", StubBus()
    ours, key = add_key(path, tenant="acme", scope="agent", now=time.time())
    admin, _ = add_key(path, tenant="ops", scope="admin", now=time.time())
    data = recorded("span")
    async with receiving(bus, keys=KeyRing(path, clock=time.time), require_key=True) as rig:
        for shown in ({}, {"x-evolved-key": "evk_nonsense"}, {"x-evolved-key": admin}):
            assert (await rig.post(data, {**PROTOBUF, **shown})).status_code == 401
        assert bus.published == []
        assert (await rig.post(data, {**PROTOBUF, "x-evolved-key": ours})).status_code == 200
    assert {(call.tenant, call.caller) for call in published(bus)} == {("acme", key.id)}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_recorded_run_becomes_one_trajectory_through_a_real_broker_that_hangs(
    tmp_path: Path, store_url: str
) -> None:
    settings = AssemblerSettings(idle_seconds=0.5)
    store = Store(store_url, clock=time.time)
    await store.open()
    quick = msgspec.structs.replace(PATIENT, answer_seconds=2.0, publish_attempts=1)
    async with running_broker(tmp_path) as broker, opened_bus(SameLoopHost(), broker, tmp_path, settings=quick) as bus:
        assert broker.pid is not None
        async with receiving(bus) as rig:
            os.kill(broker.pid, signal.SIGSTOP)
            data = recorded("span")
            assert (await rig.post(data)).status_code == 503
            os.kill(broker.pid, signal.SIGCONT)

            async def taken() -> bool:
                return (await rig.post(data)).status_code == 200

            await until(taken, "the broker takes the export", 120)
        assembler = Assembler(settings, store=store, clock=time.time)
        unit, draining = Unit("assembler", anyio.sleep_forever, Restart()), anyio.Event()
        closed = await persistently(bus.subscribe, "watcher", [TRAJECTORY_CLOSED])
        async with anyio.create_task_group() as group:
            lifecycle = Lifecycle(unit, draining, lambda: None)
            group.start_soon(lambda: run_actor(assembler, bus, store, lifecycle, rng=random.Random(1)))
            (delivery,) = await closed.fetch(10, within(120))
            group.cancel_scope.cancel()
    run = decode(delivery.data)
    assert isinstance(run, Trajectory)
    assert [step.text or step.tool_calls[0].name for step in run.steps] == ["add", "4 and 6", "all done"]
    assert (run.goal, run.trainable, run.why_not) == ("2+2 and 3+3?", False, "no token ids in spans")
    assert (await store.counts())["exchanges"] == 3
    await store.aclose()
