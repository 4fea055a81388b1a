"""The OTLP receiver over real HTTP: recorded exports in, exchanges in its spool, and what else exporters are told."""

import contextlib
import gzip
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from actors.messages import Exchange, decode
from actors.system.lifecycle import Lifecycle
from adapters.redaction import RedactionSettings, Redactor
from daemon.figures import Figures
from daemon.ingest.otlp_receiver import MAX_BODY_BYTES, MAX_REQUESTS, OtlpIntake, intake_figures
from daemon.ingest.shipper import Shipper
from daemon.tap.keys import KeyRing, add_key
from daemon.tap.spool import OTLP, SpoolReader, SpoolWriter
from tests.support.otlp import as_json, calls_of, export, recorded
from tests.support.patience import until, within
from tests.support.ports import free_port
from tests.support.process import Process, listens
from tests.support.stub_bus import StubBus

pytestmark = pytest.mark.anyio
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
REDACT = Redactor(RedactionSettings()).message
RECEIVER = """
import sys
from pathlib import Path
import anyio
from actors.system.lifecycle import Lifecycle
from daemon.ingest.otlp_receiver import OtlpIntake
from daemon.tap.spool import SpoolWriter
spool = SpoolWriter(Path(sys.argv[1]))
intake = OtlpIntake("127.0.0.1", int(sys.argv[2]), spool, redact=lambda call: call)
async def main():
    await intake.run(Lifecycle("intake"))
anyio.run(main)
"""


class Rig(NamedTuple):
    intake: OtlpIntake
    client: httpx.AsyncClient

    async def post(self, data: bytes, headers: dict = PROTOBUF) -> httpx.Response:
        return await self.client.post("/v1/traces", content=data, headers=headers)


@contextlib.asynccontextmanager
async def receiving(spool: Path, *, redact=REDACT, disk_bytes=1 << 30, **settings: Any) -> AsyncIterator[Rig]:
    port = free_port()
    intake = OtlpIntake("127.0.0.1", port, SpoolWriter(spool, disk_bytes), redact=redact, **settings)
    life = Lifecycle("intake")
    async with httpx.AsyncClient(timeout=within()) as client, anyio.create_task_group() as group:
        group.start_soon(intake.run, life)
        await until(lambda: listens(port), "it listens")
        client.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        yield Rig(intake, client)
        life.drain()


def kept(spool: Path) -> list[Exchange]:
    """What lies in the spool, as a shipper would find it that starts now."""
    found = [decode(record.payload) for record in SpoolReader(spool).read(10_000)]
    return sorted((call for call in found if isinstance(call, Exchange)), key=lambda call: call.started)


async def test_an_answered_export_is_in_the_spool_under_the_same_ids_however_often_it_comes(tmp_path: Path) -> None:
    async with receiving(tmp_path) as rig:
        packed = gzip.compress(as_json(recorded("span")))
        answer = await rig.post(packed, {**JSON, "content-encoding": "gzip"})
        assert (answer.status_code, answer.json()) == (200, {})
        assert answer.headers["content-type"] == "application/json"
        for mode, number in (("span", 3), ("openinference", 7)):
            for _ in range(2):
                answer = await rig.post(recorded(mode))
                assert (answer.status_code, answer.content) == (200, b"")
            records = SpoolReader(tmp_path).read(100)
            assert {record.id.hex() for record in records} == {call.id for call in kept(tmp_path)}
            assert len({record.id for record in records}) == number
        assert (await rig.post(recorded("silent"))).status_code == 200
        assert rig.intake.counts["no_content"] == 3
        registry = CollectorRegistry()
        registry.register(Figures(intake_figures, rig.intake))
        text = generate_latest(registry).decode()
    assert {call.response_id for call in kept(tmp_path)} >= {"chatcmpl-1", "chatcmpl-2", "chatcmpl-3"}
    assert 'evolved_otlp_calls_total{what="kept"} 17.0' in text
    assert 'evolved_otlp_exports_total{status="200"} 6.0' in text


async def test_what_is_personal_touches_no_disk_and_spans_without_ids_are_a_partial_success(tmp_path: Path) -> None:
    data = recorded("span")
    personal = data.replace(b"2+2 and 3+3?", b"call a@b.org")  # as long, as the protobuf says
    key = as_json(data).split(b'"traceId": "')[1][:32]
    async with receiving(tmp_path) as rig:
        assert (await rig.post(personal)).status_code == 200
        answer = await rig.post(data.replace(bytes.fromhex(key.decode()), bytes(16)))
    first, *_ = kept(tmp_path)
    assert b"a@b.or" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (first.redacted, first.finds["email"]) == (("prompt",), 1)
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, told.rejected_spans) == (200, 4)
    assert "trace id" in told.error_message


async def test_what_cannot_be_taken_is_refused_with_the_status_that_exporters_know(tmp_path: Path) -> None:
    data = recorded("span")
    async with receiving(tmp_path) as rig:
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
    assert kept(tmp_path) == []


async def test_while_the_disk_takes_nothing_exporters_are_told_to_come_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, data = tmp_path / "spool", recorded("span")
    async with receiving(spool, disk_bytes=100_000) as rig:
        spool.touch()  # where the directory is to be
        refused = await rig.post(data)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        spool.unlink()
        spool.mkdir()
        full = spool / f"{7:012d}-{0:016x}.seg"
        full.write_bytes(bytes(100_000))
        assert (await rig.post(data)).status_code == 503
        assert rig.intake.counts["kept"] == 0
        full.unlink()
        await anyio.sleep(1.0)  # while it is full, the disk is looked at once a second
        with monkeypatch.context() as patch:
            patch.setattr("os.fdatasync", broken)
            assert (await rig.post(data)).status_code == 503
        assert (await rig.post(data)).status_code == 200
        assert rig.intake.counts["kept"] == 3
    assert len({call.id for call in kept(spool)}) == 3


async def test_a_daemon_that_is_killed_after_its_answer_has_lost_nothing_and_the_next_one_publishes_it(
    tmp_path: Path,
) -> None:
    bus, life, port = StubBus(), Lifecycle("shipper"), free_port()
    command = [sys.executable, "-c", RECEIVER, tmp_path / "spool" / OTLP, str(port)]
    with Process(command, tmp_path / "log") as receiver:
        await anyio.to_thread.run_sync(receiver.until_listens, port)
        async with httpx.AsyncClient(timeout=within()) as client:
            answer = await client.post(f"http://127.0.0.1:{port}/v1/traces", content=recorded("span"), headers=PROTOBUF)
            receiver.signal(signal.SIGKILL)
    assert answer.status_code == 200
    shipper = Shipper(tmp_path / "spool", bus, rng=random.Random(1))
    async with anyio.create_task_group() as group:
        group.start_soon(shipper.run, life)
        await until(lambda: len(bus.published) >= 3, "what was answered is published")
        life.drain()
    published = [decode(item.data) for item in bus.published]
    assert sorted(call.id for call in published) == sorted(call.id for call in calls_of(export("span")))


async def test_a_call_that_we_fail_over_is_counted_without_its_words_and_does_not_hold_up_the_others(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    def fails(call: Exchange) -> Exchange:
        seen.append(call.id)
        if len(seen) == 2:
            raise ValueError(call.request.decode())
        return call

    async with receiving(tmp_path, redact=fails) as rig:
        with capture_logs() as logs:
            assert (await rig.post(recorded("span"))).status_code == 200
        assert (rig.intake.counts["kept"], rig.intake.counts["unreadable"]) == (2, 1)
    assert {call.id for call in kept(tmp_path)} == {seen[0], seen[2]}
    (told,) = [line for line in logs if line["event"] == "otlp_call_failed"]
    assert told["error"] == "ValueError"
    assert "2+2" not in str(told)


def broken(descriptor: int) -> None:
    raise OSError(5, "no such luck")


async def test_too_many_exports_at_once_are_told_to_come_again(tmp_path: Path) -> None:
    data = recorded("span")
    under_way, go_on = anyio.Event(), threading.Event()

    def held(call: Exchange) -> Exchange:
        anyio.from_thread.run_sync(under_way.set)
        go_on.wait(within())
        return call

    async with receiving(tmp_path, redact=held) as rig:
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
    path, spool = tmp_path / "keys.json", tmp_path / "spool"
    ours, key = add_key(path, tenant="acme", scope="agent", now=time.time())
    admin, _ = add_key(path, tenant="ops", scope="admin", now=time.time())
    data = recorded("span")
    async with receiving(spool, keys=KeyRing(path, clock=time.time), require_key=True) as rig:
        for shown in ({}, {"x-evolved-key": "evk_nonsense"}, {"x-evolved-key": admin}):
            assert (await rig.post(data, {**PROTOBUF, **shown})).status_code == 401
        assert kept(spool) == []
        assert (await rig.post(data, {**PROTOBUF, "x-evolved-key": ours})).status_code == 200
    assert {(call.tenant, call.caller) for call in kept(spool)} == {("acme", key.id)}


async def test_without_a_key_the_resource_says_whose_calls_they_are_if_the_settings_name_the_attribute(
    tmp_path: Path,
) -> None:
    sent = ExportTraceServiceRequest.FromString(recorded("span"))
    for one in sent.resource_spans:
        one.resource.attributes.add(key="service.namespace").value.string_value = "acme"
    for place, attribute, tenant in (("a", "service.namespace", "acme"), ("b", "", "default"), ("c", "x", "default")):
        async with receiving(tmp_path / place, tenant_attribute=attribute) as rig:
            assert (await rig.post(sent.SerializeToString())).status_code == 200
        assert {call.tenant for call in kept(tmp_path / place)} == {tenant}
