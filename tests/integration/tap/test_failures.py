"""When engine, agent, disk or descriptors fail: who is told what, and what is kept."""

from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from tests.support.engine import STREAM_HEAD, Asked, Engine, answer, chunk, completion, running_engine
from tests.support.patience import until, within
from tests.support.ports import free_port
from tests.support.tapping import BODY, Rig, hang, post, raw, running_tap

pytestmark = pytest.mark.anyio


async def test_an_engine_that_is_down_gives_502_and_the_connection_goes_on(tmp_path: Path) -> None:
    port = free_port()
    async with running_tap(tmp_path, port) as rig, rig.http() as http:
        got = await http.post("/v1/chat/completions", json=BODY)
        assert got.status_code == 502
        assert got.json()["error"]["code"] == "upstream_down"
        assert got.json()["error"]["type"] == "server_error"
        async with running_engine(port):
            assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        assert rig.tap.counts.connections == 1


async def test_a_client_that_leaves_ends_the_engines_call(rig: Rig, engine: Engine) -> None:
    engine.script = hang
    async with raw(rig) as client:
        await client.send(post())
        with anyio.fail_after(within()):
            await engine.called.wait()
    with anyio.fail_after(within()):
        await engine.left.wait()
    (record,) = await rig.records()
    assert (record.complete, record.problem, record.status) == (False, "client_left", 0)


async def test_a_client_that_leaves_in_mid_stream_ends_the_engines_call(rig: Rig, engine: Engine) -> None:
    async def endless(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD)
        while True:
            await stream.send(chunk(b"data: {}\n\n"))
            await anyio.sleep(0.002)

    engine.script = endless
    async with raw(rig) as client:
        await client.send(post())
        await client.receive()
    with anyio.fail_after(within()):
        await engine.left.wait()
    (record,) = await rig.records()
    assert (record.complete, record.problem) == (False, "client_left")
    assert record.response.startswith(b"data: {}")


async def test_an_engine_that_dies_in_mid_stream_leaves_a_stream_without_an_end(rig: Rig, engine: Engine) -> None:
    async def die(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        return False

    engine.script = die
    async with rig.http() as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post("/v1/chat/completions", json=BODY)
    (record,) = await rig.records()
    assert (record.complete, record.problem, record.response) == (False, "upstream_broke", b"data: 1\n\n")


async def test_an_engine_that_dies_before_its_answer_gives_502(
    http: httpx.AsyncClient, rig: Rig, engine: Engine
) -> None:
    async def die(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        return False

    engine.script = die
    got = await http.post("/v1/chat/completions", json=BODY)
    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_broke")
    assert len(engine.asked) == 1, "a fresh connection is no reason to send a call twice"
    (record,) = await rig.records()
    assert (record.status, record.complete) == (502, False)


async def test_a_stale_connection_is_made_up_for(http: httpx.AsyncClient, rig: Rig, engine: Engine) -> None:
    async def every_third_closes(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        if len(engine.asked) % 3 == 0:
            return False
        await stream.send(answer(200, completion(tokens=False)))
        return True

    engine.script = every_third_closes
    for _ in range(4):
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
    assert len(engine.asked) == 5, "one of them twice"
    assert rig.tap.counts.stale == 1


async def test_a_connection_that_the_engine_closed_in_between_is_not_used(
    http: httpx.AsyncClient, rig: Rig, engine: Engine
) -> None:
    async def once(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(answer(200, completion(tokens=False)))
        return False

    engine.script = once
    for _ in range(4):
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        await until(lambda: rig.tap.upstreams[0].idle == 0, "the tap sees that the engine has closed")
    assert len(engine.asked) == 4
    assert rig.tap.counts.stale == 0


async def test_a_connection_that_broke_after_the_first_byte_is_not_tried_again(rig: Rig, engine: Engine) -> None:
    calls = []

    async def second_dies(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        calls.append(asked)
        if len(calls) == 1:
            await stream.send(answer(200, {}))
            return True
        await stream.send(b"HTTP/1.1 200 OK\r\n")
        return False

    engine.script = second_dies
    async with rig.http() as http:
        await http.post("/v1/chat/completions", json=BODY)
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 502
    assert len(calls) == 2


async def test_an_engine_that_takes_too_long_gives_504(engine: Engine, tmp_path: Path) -> None:
    engine.script = hang
    async with running_tap(tmp_path, engine.port, first_byte_seconds=0.1) as rig, rig.http() as http:
        got = await http.post("/v1/chat/completions", json=BODY)
        assert (got.status_code, got.json()["error"]["code"]) == (504, "upstream_timeout")
        with anyio.fail_after(within()):
            await engine.left.wait()
        assert (await http.get("/nowhere")).status_code == 404, "the connection goes on"
        (record,) = await rig.records()
        assert (record.status, record.problem) == (504, "timeout")


async def test_agents_are_served_while_the_spool_is_broken(engine: Engine, tmp_path: Path) -> None:
    tmp_path.joinpath("spool").write_text("a file where the directory should be")
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        for _ in range(3):
            assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        await until(lambda: not rig.tap.spool.taking, "the tap hears that the spool is broken")
        got = await http.post("/v1/feedback", json={"response_id": "r", "outcome": 1})
        assert (got.status_code, got.json()["error"]["code"]) == (503, "spool_unavailable")
