"""The tap as a process: metrics, drain, signals."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from daemon.tap.spool_reader import SpoolReader
from tests.support.engine import STREAM_HEAD, Asked, Engine, chunk
from tests.support.patience import until, wait_until, within
from tests.support.ports import free_port
from tests.support.tapping import BODY, Rig, post, raw, read_all, running_tap

pytestmark = pytest.mark.anyio


async def test_metrics_are_on_the_admin_port_alone(http: httpx.AsyncClient, rig: Rig) -> None:
    await http.post("/v1/chat/completions", json=BODY)
    await http.post("/v1/feedback", json={})
    await rig.records()
    await until(lambda: rig.tap.spool.waiting == 0, "the scribe has told that it has written")
    assert (await http.get("/metrics")).status_code == 404
    async with rig.http(rig.admin) as admin:
        text = (await admin.get("/metrics")).text
        assert (await admin.get("/healthz")).status_code == 200
        assert (await admin.get("/v1/models")).status_code == 404
    assert 'evolved_tap_requests_total{route="engine",status="200"} 1.0' in text
    assert 'evolved_tap_feedback_total{result="rejected"} 1.0' in text
    assert "evolved_tap_spool_written_total 1.0" in text
    assert 'evolved_tap_spool_shed_total{reason="memory"} 0.0' in text


async def shut(rig: Rig) -> bool:
    """Whether the tap takes no more connections."""
    try:
        async with raw(rig):
            return False
    except OSError:
        return True


@pytest.mark.promise
async def test_a_drain_finishes_what_is_under_way(engine: Engine, tmp_path: Path) -> None:
    async def slow(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        await engine.gate.wait()
        await stream.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True

    engine.script = slow
    async with running_tap(tmp_path, engine.port, drain_seconds=within()) as rig, raw(rig) as client:
        await client.send(post())
        await client.receive()
        rig.stop.set()
        await until(lambda: shut(rig), "the port is shut")
        engine.gate.set()
        assert (await read_all(client)).endswith(b"0\r\n\r\n")
    (record,) = await rig.records()
    assert record.complete


@pytest.mark.promise
async def test_a_drain_answers_the_first_request_of_a_connection_that_it_had_accepted(tmp_path: Path) -> None:
    async with running_tap(tmp_path, free_port()) as rig, raw(rig) as client, raw(rig) as silent:
        await until(lambda: rig.tap.counts.connections == 2, "both are accepted")
        rig.stop.set()
        await until(lambda: shut(rig), "the port is shut")
        await client.send(post(b'{"response_id": "r", "outcome": 1}', path=b"/v1/feedback"))
        assert (await read_all(client)).startswith(b"HTTP/1.1 202 ")
        with pytest.raises(anyio.EndOfStream):
            await silent.receive()


@pytest.mark.promise
async def test_a_connection_that_a_drain_accepts_last_ends_with_it(tmp_path: Path) -> None:
    async with running_tap(tmp_path, free_port()) as rig:
        # Nothing is awaited in between: the tap accepts it in the round of its loop in which it hears of the end.
        with socket.create_connection(("127.0.0.1", rig.bound.port)) as late:
            late.sendall(post(b'{"response_id": "r", "outcome": 1}', path=b"/v1/feedback"))
            rig.stop.set()
            late.settimeout(within())
            answer = await anyio.to_thread.run_sync(late.recv, 65_536)
            assert answer.startswith(b"HTTP/1.1 202 ")
            assert await anyio.to_thread.run_sync(late.recv, 65_536) == b"", "it is closed"
            await until(lambda: not rig.tap.counts.connections, "nobody is left")
            assert rig.tap.counts.errors["cut_off"] == 0


@pytest.mark.promise
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
                body, url = {"response_id": "r", "outcome": 1}, f"http://127.0.0.1:{port}/v1/feedback"
                return httpx.post(url, json=body, timeout=within()).status_code == 202
            return False

        wait_until(posted, "the tap takes feedback")
        os.kill(process.pid, signal.SIGHUP)  # of a terminal that is closed
        wait_until(posted, "it serves on")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(within()) == 0
    finally:
        process.kill()
        process.wait()
    assert len(SpoolReader(tmp_path / "spool").read()) == 2


def test_the_tap_needs_no_torch_no_broker_and_no_database() -> None:
    code = (
        "import sys, daemon.tap.server; "
        "print([m for m in ('torch', 'nats', 'sqlalchemy', 'openai', 'httpx', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=within())
    assert done.stdout.strip() == "[]"
