"""A real nginx with the configuration in ops/nginx mirrors to a real tap; agents must never notice."""

import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from actors.messages import Exchange
from tests.support.engine import Engine, completion, running_engine, stream_pieces
from tests.support.patience import within
from tests.support.ports import free_port
from tests.support.process import Process
from tests.support.tapping import BODY, Rig, running_tap

pytestmark = pytest.mark.anyio
SHIPPED = Path(__file__).parents[2] / "ops" / "nginx" / "mirror.conf"
AUTHORIZATION = {"authorization": "Bearer sk-of-the-engine", "cookie": "session=1"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def nginx() -> str:
    found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    assert found, "nginx is needed: apt install nginx-light"
    return found


@contextlib.asynccontextmanager
async def mirroring(
    directory: Path, *, engine: int, mirror: int, host: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """nginx with the shipped configuration on other ports, and an agent's client before it."""
    port, text = free_port(), SHIPPED.read_text()
    for shipped, here in (
        ("listen 127.0.0.1:8080;", f"listen 127.0.0.1:{port};"),
        ("server 127.0.0.1:8000;", f"server 127.0.0.1:{engine};"),
        ("server 127.0.0.1:8082 ", f"server {host}:{mirror} "),
    ):
        assert text.count(shipped) == 1
        text = text.replace(shipped, here)
    root = directory / "nginx"
    root.mkdir()
    (root / "mirror.conf").write_text(text)
    temporary = "".join(
        f"{name}_temp_path {root}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (root / "nginx.conf").write_text(
        f"daemon off; master_process off; worker_processes 1; error_log {root}/error.log; pid {root}/pid;"
        f"events {{}} http {{ access_log off; {temporary} include {root}/mirror.conf; }}"
    )
    with Process([nginx(), "-p", root, "-c", root / "nginx.conf"], root / "stderr") as process:
        await anyio.to_thread.run_sync(process.until_listens, port)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=within()) as client:
            yield client


@contextlib.asynccontextmanager
async def mirrored(directory: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Engine, Rig]]:
    """(client, engine, tap): the tap sees copies alone."""
    async with (
        running_engine() as engine,
        running_tap(directory, free_port(), mirror_host="127.0.0.2", mirror_port=0) as rig,
    ):
        assert rig.bound.mirror_port is not None
        async with mirroring(directory, engine=engine.port, mirror=rig.bound.mirror_port, host="127.0.0.2") as client:
            yield client, engine, rig


async def one(rig: Rig) -> Exchange:
    (record,) = await rig.records(1)
    assert isinstance(record, Exchange)
    return record


@pytest.mark.parametrize("text", ["hello", "x" * 3_000_000], ids=["small", "large"])
async def test_the_agent_gets_the_engines_answer_and_the_tap_the_whole_request(tmp_path: Path, text: str) -> None:
    body = {**BODY, "messages": [{"role": "user", "content": text}]}
    async with mirrored(tmp_path) as (client, engine, rig):
        answer = await client.post("/v1/chat/completions", json=body, headers=AUTHORIZATION)
        record = await one(rig)
    assert answer.json() == completion(tokens=False)
    assert engine.asked[0].headers["authorization"] == AUTHORIZATION["authorization"]
    assert (record.source, record.endpoint) == ("mirror", "/v1/chat/completions")
    assert (record.status, record.response) == (0, b"")
    assert record.request == engine.asked[0].body


async def test_a_stream_goes_through_event_by_event(tmp_path: Path) -> None:
    async with mirrored(tmp_path) as (client, _, rig):
        async with client.stream("POST", "/v1/chat/completions", json={**BODY, "stream": True}) as answer:
            pieces = [piece async for piece in answer.aiter_raw()]
        assert json.loads((await one(rig)).request)["stream"] is True
    assert b"".join(pieces) == b"".join(stream_pieces(tokens=False))
    assert len(pieces) > 3


async def test_the_engines_keys_do_not_reach_the_mirror(tmp_path: Path) -> None:
    headers = {**AUTHORIZATION, "x-evolved-trajectory": "t"}
    async with (
        running_engine() as engine,
        running_engine() as watcher,
        mirroring(tmp_path, engine=engine.port, mirror=watcher.port) as client,
    ):
        await client.post("/v1/chat/completions", json=BODY, headers=headers)
        with anyio.fail_after(within()):
            await watcher.called.wait()
    (copy,) = watcher.asked
    assert copy.line == b"POST /v1/chat/completions HTTP/1.1"
    assert copy.headers["x-evolved-trajectory"] == "t"
    assert not {"authorization", "cookie"} & set(copy.headers)


async def test_other_requests_are_not_copied(tmp_path: Path) -> None:
    async with mirrored(tmp_path) as (client, _, rig):
        assert (await client.get("/v1/models")).status_code == 200
        assert (await client.post("/reset", json={})).status_code == 404
        await rig.nothing_kept()


async def test_agents_do_not_notice_a_tap_that_is_down(tmp_path: Path) -> None:
    async with running_engine() as engine, mirroring(tmp_path, engine=engine.port, mirror=free_port()) as client:
        answers = [await client.post("/v1/chat/completions", json=BODY) for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}


async def test_a_tap_that_hangs_does_not_hold_an_agent_up(tmp_path: Path) -> None:
    # nginx gives up on it after its own second; if it did not, no answer would ever come.
    async with running_engine() as engine, await anyio.create_tcp_listener(local_host="127.0.0.1") as silent:
        port = silent.extra(anyio.abc.SocketAttribute.local_port)
        async with mirroring(tmp_path, engine=engine.port, mirror=port) as client:
            for _ in range(2):
                assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200
