"""What a call gets and what its record says: when all goes well, and when engine, agent or disk fail.

That bytes, streams and what is hidden pass unharmed: `tests/hostile`.
"""

import asyncio
import json
import time
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.abc import ByteStream

from daemon.tap.router import Router
from daemon.tap.settings import Address, UpstreamSettings
from daemon.tap.upstream import Upstream
from tests.support.engine import STREAM_HEAD, Asked, Engine, Script, answer, chunk, replies, running_engine
from tests.support.patience import until, within
from tests.support.ports import free_port
from tests.support.tapping import BODY, Rig, hang, post, raw, read_all, running_tap

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


async def test_a_malformed_request_gets_the_engines_own_answer(http: httpx.AsyncClient, rig: Rig) -> None:
    for body in (b"", b"{", b"[]", b'{"messages": 1', b"\xff\xfe", b'{"model": "desk"}'):
        got = await http.post(CHAT, content=body)
        assert (got.status_code, got.json()["error"]["message"][:8]) == (400, "engine: ")
        (record,) = await rig.records()
        assert (record.status, record.request, record.complete) == (400, body, True)


async def test_nothing_is_asked_for_when_switched_off(engine: Engine, tmp_path: Path) -> None:
    async with running_tap(tmp_path, engine.port, capture_tokens=False) as rig, rig.http() as http:
        await http.post(CHAT, json=BODY)
        assert engine.asked[0].json == BODY


# -- engines and agents that fail --------------------------------------------------------------------------------------


ENDS = replies(b"", goes_on=False)
HALF = replies(STREAM_HEAD + chunk(b"data: {}\n\n"), goes_on=False)


async def endless(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
    await stream.send(STREAM_HEAD)
    while True:
        await stream.send(chunk(b"data: {}\n\n"))
        await anyio.sleep(0.002)


@pytest.mark.parametrize(
    ("script", "leaves", "status", "error", "response"),
    [
        (hang, True, 0, "client_left", b""),
        (endless, True, 200, "a stream of an unknown form", b"[{}"),
        (HALF, False, 200, "a stream of an unknown form", b"[{}"),
        (ENDS, False, 502, "upstream_broke", b""),
        (hang, False, 504, "timeout", b""),
    ],
    ids=["agent leaves before the answer", "agent leaves in mid-stream", "engine dies in mid-stream",
         "engine dies before its answer", "engine takes too long"],
)  # fmt: skip
async def test_the_record_of_a_call_that_went_wrong_says_how(
    tmp_path: Path, engine: Engine, script: Script, leaves: bool, status: int, error: str, response: bytes
) -> None:
    engine.script = script
    patience = 0.1 if error == "timeout" else within()
    async with running_tap(tmp_path, engine.port, first_byte_seconds=patience) as rig:
        with anyio.fail_after(within()):
            async with raw(rig) as client:
                await client.send(post(json.dumps(BODY).encode(), b"Connection: close"))
                await engine.called.wait()
                if not leaves:
                    answered = await read_all(client)
                elif response:
                    await client.receive()
            if script in (hang, endless):
                await engine.left.wait()
        (record,) = await rig.records()
    assert (record.complete, record.error, record.status) == (False, error, status)
    assert record.response.startswith(response)
    assert len(engine.asked) == 1, "a fresh connection is no reason to send a call twice"
    if not leaves:
        assert answered.startswith(b"HTTP/1.1 %d " % status)
        assert not answered.endswith(b"0\r\n\r\n")


async def test_an_engine_that_is_down_gives_502_and_the_connection_goes_on(tmp_path: Path) -> None:
    port = free_port()
    async with running_tap(tmp_path, port) as rig, rig.http() as http:
        got = await http.post(CHAT, json=BODY)
        error = got.json()["error"]
        assert (got.status_code, error["code"], error["type"]) == (502, "upstream_down", "server_error")
        async with running_engine(port):
            assert (await http.post(CHAT, json=BODY)).status_code == 200
        assert rig.tap.counts.connections == 1


async def test_a_stale_connection_is_made_up_for_unless_an_answer_had_begun(
    http: httpx.AsyncClient, rig: Rig, engine: Engine
) -> None:
    async def every_third_closes(engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        if len(engine.asked) % 3 == 0:
            await stream.send(begun)
            return False
        await stream.send(answer(200, {}))
        return True

    engine.script, begun = every_third_closes, b""
    for _ in range(4):
        assert (await http.post(CHAT, json=BODY)).status_code == 200
    assert (len(engine.asked), rig.tap.counts.stale) == (5, 1), "one of them twice"
    begun = b"HTTP/1.1 200 OK\r\n"
    assert (await http.post(CHAT, json=BODY)).status_code == 502
    assert (len(engine.asked), rig.tap.counts.stale) == (6, 1)


async def test_an_engine_that_is_away_is_made_up_for_by_another_and_soon_gets_nothing_new(
    tmp_path: Path, engine: Engine
) -> None:
    urls = {"away": f"http://127.0.0.1:{free_port()}", "here": f"http://127.0.0.1:{engine.port}"}
    upstreams = tuple(UpstreamSettings(url=url, name=name) for name, url in urls.items())
    async with running_tap(tmp_path, 0, upstreams=upstreams) as rig, rig.http() as http:
        rerouted = rig.tap.counts.errors
        assert [(await http.post(CHAT, json=BODY)).status_code for _ in range(20)] == [200] * 20
        before = rerouted["rerouted"]
        assert 0 < before < 20, "new runs went to both"
        await until(lambda: not rig.tap.router.upstreams[0].healthy, "the engine that is away is noticed")
        async with rig.http(rig.admin) as admin:
            metrics = (await admin.get("/metrics")).text
        for name, healthy in (("away", 0), ("here", 1)):
            assert f'evolved_tap_upstream_healthy{{engine="{name}"}} {healthy}.0' in metrics
        assert [(await http.post(CHAT, json=BODY)).status_code for _ in range(20)] == [200] * 20
        assert rerouted["rerouted"] == before


async def test_who_talks_without_a_line_end_is_a_sick_engine_and_ends_nothing() -> None:
    def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 200_000)
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        engines = [Upstream(name, address, weight=1.0, tls=None, clock=time.monotonic) for name in ("a", "b")]
        watching = asyncio.ensure_future(Router(engines).watch(0.01))
        await until(lambda: watching.done() or not any(one.healthy for one in engines), "they are looked at")
        assert not watching.done()
        watching.cancel()


async def test_agents_are_served_while_the_spool_is_broken(engine: Engine, tmp_path: Path) -> None:
    tmp_path.joinpath("spool").write_text("a file where the directory should be")
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        for _ in range(3):
            assert (await http.post(CHAT, json=BODY)).status_code == 200
        await until(lambda: not rig.tap.spool.taking, "the tap hears that the spool is broken")
        got = await http.post("/v1/feedback", json={"response_id": "r", "outcome": 1})
        assert (got.status_code, got.json()["error"]["code"]) == (503, "spool_unavailable")
