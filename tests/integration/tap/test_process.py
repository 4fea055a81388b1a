"""The tap as a process: metrics, drain, signals."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from actors.messages.spool import decode_spooled
from daemon.tap.server import serve
from daemon.tap.settings import TapSettings
from daemon.tap.spool_reader import SpoolReader
from tests.support.engine import STREAM_HEAD, Asked, Engine, chunk
from tests.support.ports import free_port
from tests.support.tapping import BODY, Rig, post, read_all, until

pytestmark = pytest.mark.anyio


async def test_metrics_are_on_the_admin_port_alone(http: httpx.AsyncClient, rig: Rig) -> None:
    await http.post("/v1/chat/completions", json=BODY)
    await http.post("/v1/feedback", json={})
    await rig.records()
    await until(lambda: rig.tap.spool.waiting == 0)
    assert (await http.get("/metrics")).status_code == 404
    async with httpx.AsyncClient(base_url=rig.admin) as admin:
        text = (await admin.get("/metrics")).text
        assert (await admin.get("/healthz")).status_code == 200
        assert (await admin.get("/v1/models")).status_code == 404
    assert 'evolved_tap_requests_total{route="engine",status="200"} 1.0' in text
    assert 'evolved_tap_feedback_total{result="rejected"} 1.0' in text
    assert "evolved_tap_spool_written_total 1.0" in text
    assert 'evolved_tap_spool_shed_total{reason="memory"} 0.0' in text


async def test_a_drain_finishes_what_is_under_way(engine: Engine, tmp_path: Path) -> None:
    async def slow(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        await engine.gate.wait()
        await stream.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True

    engine.script = slow
    stop = anyio.Event()
    settings = TapSettings(
        port=0, admin_port=0, spool_dir=str(tmp_path / "spool"), upstream=f"http://127.0.0.1:{engine.port}"
    )
    async with anyio.create_task_group() as group:
        bound = await group.start(lambda *, task_status: serve(settings, stop=stop, task_status=task_status))
        async with await anyio.connect_tcp("127.0.0.1", bound.port) as client:
            await client.send(post())
            await client.receive()
            stop.set()
            await anyio.sleep(0.1)
            with pytest.raises(OSError, match=r"."):
                await anyio.connect_tcp("127.0.0.1", bound.port)
            engine.gate.set()
            assert (await read_all(client)).endswith(b"0\r\n\r\n")
    (record,) = SpoolReader(tmp_path / "spool").read()
    assert decode_spooled(record.payload).complete


async def test_a_drain_answers_the_first_request_of_a_connection_that_it_had_accepted(tmp_path: Path) -> None:
    stop, body = anyio.Event(), b'{"response_id": "r", "outcome": 1}'
    settings = TapSettings(port=0, admin_port=0, spool_dir=str(tmp_path / "spool"))
    async with anyio.create_task_group() as group:
        bound = await group.start(lambda *, task_status: serve(settings, stop=stop, task_status=task_status))
        async with (
            await anyio.connect_tcp("127.0.0.1", bound.port) as client,
            await anyio.connect_tcp("127.0.0.1", bound.port) as silent,
        ):
            await anyio.sleep(0.1)
            stop.set()
            await anyio.sleep(0.1)
            head = f"POST /v1/feedback HTTP/1.1\r\nHost: tap\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            await client.send(head + body)
            assert (await read_all(client)).startswith(b"HTTP/1.1 202 ")
            with pytest.raises(anyio.EndOfStream):
                await silent.receive()


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def test_sigterm_ends_the_process_with_its_spool_flushed(tmp_path: Path) -> None:
    port, admin = free_port(), free_port()
    code = (
        "from daemon.tap.process import main; from daemon.tap.settings import TapSettings as S;"
        f"main(S(port={port}, admin_port={admin}, spool_dir={str(tmp_path / 'spool')!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:

        def posted() -> bool:
            with contextlib.suppress(httpx.TransportError):
                body = {"response_id": "r", "outcome": 1}
                return httpx.post(f"http://127.0.0.1:{port}/v1/feedback", json=body).status_code == 202
            return False

        wait_for(posted)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
    assert len(SpoolReader(tmp_path / "spool").read()) == 1


def test_the_tap_needs_no_torch_no_broker_and_no_database() -> None:
    code = (
        "import sys, daemon.tap.server; "
        "print([m for m in ('torch', 'nats', 'sqlalchemy', 'openai', 'httpx', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
