"""The OTLP receiver over real HTTP: recorded exports in, exchanges on the bus, and what else exporters are told."""

import contextlib
import gzip
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from prometheus_client import CollectorRegistry, generate_latest

from actors.messages import Exchange, decode
from actors.system.bus import Bus
from actors.system.lifecycle import Lifecycle
from actors.system.streams import TRAFFIC_EXCHANGE
from adapters.redaction import RedactionSettings, Redactor
from daemon.collectors.figures import Figures
from daemon.ingest.otlp_receiver import MAX_BODY_BYTES, MAX_REQUESTS, IntakeSettings, OtlpIntake, intake_figures
from daemon.tap.keys import KeyRing, add_key
from tests.support.otlp import as_json, recorded
from tests.support.patience import until, within
from tests.support.process import listens
from tests.support.stub_bus import StubBus

pytestmark = pytest.mark.anyio
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
REDACT = Redactor(RedactionSettings()).message


class Rig(NamedTuple):
    intake: OtlpIntake
    client: httpx.AsyncClient

    async def post(self, data: bytes, headers: dict = PROTOBUF) -> httpx.Response:
        return await self.client.post("/v1/traces", content=data, headers=headers)


@contextlib.asynccontextmanager
async def receiving(bus: Bus, *, keys: KeyRing | None = None, require_key=False, redact=REDACT) -> AsyncIterator[Rig]:
    ports: list[int] = []
    intake = OtlpIntake(
        IntakeSettings(port=0), bus, redact=redact, keys=keys, require_key=require_key, listening=ports.append
    )
    life = Lifecycle("intake")
    async with httpx.AsyncClient(timeout=within()) as client, anyio.create_task_group() as group:
        group.start_soon(intake.run, life)
        await until(lambda: ports and listens(ports[0]), "it listens")
        client.base_url = httpx.URL(f"http://127.0.0.1:{ports[0]}")
        yield Rig(intake, client)
        life.drain()


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
        registry = CollectorRegistry()
        registry.register(Figures(intake_figures, rig.intake))
        text = generate_latest(registry).decode()
    assert {call.response_id for call in published(bus)} >= {"chatcmpl-1", "chatcmpl-2", "chatcmpl-3"}
    assert 'evolved_otlp_calls_total{what="published"} 17.0' in text
    assert 'evolved_otlp_exports_total{status="200"} 6.0' in text


async def test_what_is_personal_is_taken_out_before_the_bus_and_records_without_ids_are_a_partial_success() -> None:
    bus, data = StubBus(), recorded("span")
    personal = data.replace(b"2+2 and 3+3?", b"call a@b.org")  # as long, as the protobuf says
    key = as_json(data).split(b'"traceId": "')[1][:32]
    async with receiving(bus) as rig:
        assert (await rig.post(personal)).status_code == 200
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
