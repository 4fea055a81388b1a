"""The tap between real clients and a real HTTP engine: nothing an agent sees changes, and a copy of it is kept."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import openai
import pytest

from actors.messages import Feedback
from actors.messages.spool import RawExchange, decode_spooled
from daemon.tap.capture import TOKEN_FIELDS
from daemon.tap.server import Tap, serve
from daemon.tap.settings import TapSettings
from daemon.tap.spool_reader import SpoolReader
from tests.support.engine import (
    STREAM_HEAD,
    Asked,
    Engine,
    answer,
    chunk,
    completion,
    running_engine,
    stream_pieces,
)

pytestmark = pytest.mark.anyio
BODY = {"model": "desk", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def anyio_backend() -> object:
    return ("asyncio", {"use_uvloop": True})


class Rig:
    """A tap before an engine, and a way to look into its spool."""

    def __init__(self, tap: Tap, url: str, admin: str, spool: Path) -> None:
        self.tap, self.url, self.admin, self.spool = tap, url, admin, spool
        self._reader = SpoolReader(spool)

    async def records(self, wanted: int = 1) -> list[RawExchange | Feedback]:
        """The next `wanted` records of the spool, and no more than those."""
        found = []
        with anyio.fail_after(5):
            while len(found) < wanted:
                found += [decode_spooled(record.payload) for record in self._reader.read()]
                await anyio.sleep(0.005)
        assert len(found) == wanted
        return found

    async def nothing_kept(self) -> None:
        await anyio.sleep(0.1)
        assert self._reader.read() == []


@contextlib.asynccontextmanager
async def running_tap(directory: Path, upstream: int, **settings: object) -> AsyncIterator[Rig]:
    spool = directory / "spool"
    told = TapSettings(
        **{"port": 0, "admin_port": 0, "spool_dir": str(spool), "upstream": f"http://127.0.0.1:{upstream}", **settings}
    )
    tap, stop = Tap(told, {"enabled": False}), anyio.Event()
    async with anyio.create_task_group() as group:
        bound = await group.start(lambda *, task_status: tap.run(stop, task_status))
        yield Rig(tap, f"http://127.0.0.1:{bound.port}", f"http://127.0.0.1:{bound.admin_port}", spool)
        stop.set()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with running_engine() as running:
        yield running


@pytest.fixture
async def rig(engine: Engine, tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_tap(tmp_path, engine.port, drain_seconds=3) as running:
        yield running


@pytest.fixture
async def http(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=rig.url, timeout=10) as client:
        yield client


@contextlib.asynccontextmanager
async def raw(rig: Rig) -> AsyncIterator[anyio.abc.SocketStream]:
    port = int(rig.url.rpartition(":")[2])
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        yield stream


async def read_all(stream: anyio.abc.ByteStream) -> bytes:
    data = b""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError), anyio.fail_after(5):
        while True:
            data += await stream.receive()
    return data


def post(body: bytes = json.dumps(BODY).encode(), *headers: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    lines = [b"POST %s HTTP/1.1" % path, b"Host: tap", b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


async def hang(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
    """Say nothing until the caller leaves."""
    await stream.receive()
    return False


# -- pass-through ------------------------------------------------------------------------------------------------------


async def test_the_openai_client_gets_its_completion(rig: Rig) -> None:
    async with openai.AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", max_retries=0) as client:
        got = await client.chat.completions.create(**BODY)
    assert got.choices[0].message.content == "w0 w1 w2 w3 w4 w5 "


async def test_the_openai_client_gets_its_stream(rig: Rig) -> None:
    async with openai.AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", max_retries=0) as client:
        words = [
            part.choices[0].delta.content
            async for part in await client.chat.completions.create(**BODY, stream=True)
            if part.choices
        ]
    assert "".join(words) == "w0 w1 w2 w3 w4 w5 "


async def test_a_streams_pieces_arrive_one_by_one_and_byte_for_byte(rig: Rig, engine: Engine) -> None:
    pieces = stream_pieces(tokens=False)

    async def one_by_one(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD + chunk(pieces[0]))
        await engine.gate.wait()
        await stream.send(b"".join(map(chunk, pieces[1:])) + b"0\r\n\r\n")
        return True

    engine.script = one_by_one
    asked = BODY | dict.fromkeys(TOKEN_FIELDS, True)
    async with raw(rig) as client:
        await client.send(post(json.dumps(asked).encode()))
        first = STREAM_HEAD + chunk(pieces[0])
        with anyio.fail_after(5):
            got = await client.receive()
            assert got == first, "before the engine has said any more"
            engine.gate.set()
            while not got.endswith(b"0\r\n\r\n"):
                got += await client.receive()
    assert got == STREAM_HEAD + b"".join(map(chunk, pieces)) + b"0\r\n\r\n"


async def test_connections_are_kept_on_both_sides(http: httpx.AsyncClient, rig: Rig, engine: Engine) -> None:
    for _ in range(5):
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
    assert engine.dialled == 1
    assert rig.tap.counts.connections == 1


async def test_pipelined_requests_are_answered_in_order(rig: Rig) -> None:
    async with raw(rig) as client:
        last = b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n"
        await client.send(post(b"{}") + post(b"{") + post() + last)
        got = await read_all(client)
    codes = [part[:3] for part in got.split(b"HTTP/1.1 ")[1:]]
    assert codes == [b"400", b"400", b"200", b"200"]


async def test_a_chunked_request_reaches_the_engine_whole(http: httpx.AsyncClient, engine: Engine) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in json.dumps(BODY).encode():
            yield bytes([byte])

    answer = await http.post("/v1/chat/completions", content=pieces())
    assert answer.status_code == 200
    assert engine.asked[0].json["messages"] == BODY["messages"]


async def test_a_large_body_passes(http: httpx.AsyncClient, engine: Engine) -> None:
    body = {**BODY, "messages": [{"role": "user", "content": "x" * 5_000_000}]}
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
    assert len(engine.asked[0].json["messages"][0]["content"]) == 5_000_000


async def test_a_client_that_waits_for_100_continue_is_told_to_go_on(rig: Rig) -> None:
    async with raw(rig) as client:
        head, _, body = post(json.dumps(BODY).encode(), b"Expect: 100-continue").partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        with anyio.fail_after(5):
            assert (await client.receive()).startswith(b"HTTP/1.1 100")
            await client.send(body)
            assert (await client.receive()).startswith(b"HTTP/1.1 200")


async def test_an_http_1_0_client_gets_an_answer_that_ends_with_the_connection(rig: Rig, engine: Engine) -> None:
    async def old(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")
        return False

    engine.script = old
    async with raw(rig) as client:
        await client.send(post(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await read_all(client)).endswith(b"\r\n\r\nhello")
    assert engine.asked[0].line.endswith(b"HTTP/1.0")
    (record,) = await rig.records()
    assert (record.complete, record.response) == (True, b"hello")


async def test_the_callers_own_authorization_passes_and_is_not_kept(
    http: httpx.AsyncClient, engine: Engine, rig: Rig
) -> None:
    await http.post("/v1/chat/completions", json=BODY, headers={"Authorization": "Bearer k-secret", "Cookie": "s=1"})
    assert engine.asked[0].headers["authorization"] == "Bearer k-secret"
    (record,) = await rig.records()
    assert b"secret" not in b"".join((str(record.headers).encode(), record.request, record.response))


# -- what is asked for, and the engine's own answers -------------------------------------------------------------------


async def test_token_fields_are_asked_for(http: httpx.AsyncClient, engine: Engine, rig: Rig) -> None:
    await http.post("/v1/chat/completions", json=BODY)
    sent = engine.asked[0].json
    assert sent == BODY | {"logprobs": True, "return_token_ids": True, "return_weight_versions": True}
    (record,) = await rig.records()
    assert json.loads(record.request) == BODY
    assert record.tokens_requested
    assert json.loads(record.response) == completion(tokens=True)


async def test_nothing_is_asked_for_when_switched_off(engine: Engine, tmp_path: Path) -> None:
    async with (
        running_tap(tmp_path, engine.port, capture_tokens=False) as rig,
        httpx.AsyncClient(base_url=rig.url) as http,
    ):
        await http.post("/v1/chat/completions", json=BODY)
        assert engine.asked[0].json == BODY


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 1', b"\xff\xfe", b'{"model": "desk"}'])
async def test_a_malformed_request_gets_the_engines_own_answer(
    http: httpx.AsyncClient, engine: Engine, rig: Rig, body: bytes
) -> None:
    got = await http.post("/v1/chat/completions", content=body)
    assert got.status_code == 400
    assert got.json()["error"]["message"].startswith("engine: ")
    (record,) = await rig.records()
    assert (record.status, record.request, record.complete) == (400, body, True)


async def test_opting_out_leaves_no_trace(http: httpx.AsyncClient, engine: Engine, rig: Rig) -> None:
    await http.post("/v1/chat/completions", json=BODY, headers={"x-evolved-opt-out": "1"})
    assert engine.asked[0].json == BODY
    await rig.nothing_kept()
    assert rig.tap.counts.not_kept["opted_out"] == 1


@pytest.mark.parametrize(
    "path", [b"/pause", b"/collective_rpc", b"/v1/../pause", b"/v1/%2e%2e/pause", b"http://engine/pause", b"/metrics"]
)
async def test_the_engines_admin_plane_is_out_of_reach(rig: Rig, engine: Engine, path: bytes) -> None:
    async with raw(rig) as client:
        await client.send(post(b"{}", b"Connection: close", path=path))
        head, _, body = (await read_all(client)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404")
    assert json.loads(body)["error"]["code"] == "unknown_path"
    assert engine.asked == []


async def test_health_and_models_are_the_engines(http: httpx.AsyncClient, engine: Engine) -> None:
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/v1/models")).status_code == 200
    assert [asked.line.split()[1] for asked in engine.asked] == [b"/health", b"/v1/models"]


# -- when things go wrong ----------------------------------------------------------------------------------------------


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


async def test_an_engine_that_is_down_gives_502_and_the_connection_goes_on(tmp_path: Path) -> None:
    port = unused_port()
    async with running_tap(tmp_path, port) as rig, httpx.AsyncClient(base_url=rig.url) as http:
        got = await http.post("/v1/chat/completions", json=BODY)
        assert got.status_code == 502
        assert got.json()["error"]["code"] == "upstream_down"
        assert got.json()["error"]["type"] == "server_error"
        async with running_engine(port):
            assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        assert rig.tap.counts.connections == 1


async def test_the_openai_client_understands_a_502(tmp_path: Path) -> None:
    async with (
        running_tap(tmp_path, unused_port()) as rig,
        openai.AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="k", max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="cannot be reached"):
            await client.chat.completions.create(**BODY)


async def test_a_client_that_leaves_ends_the_engines_call(rig: Rig, engine: Engine) -> None:
    engine.script = hang
    async with raw(rig) as client:
        await client.send(post())
        with anyio.fail_after(5):
            await engine.called.wait()
    with anyio.fail_after(5):
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
    with anyio.fail_after(5):
        await engine.left.wait()
    (record,) = await rig.records()
    assert (record.complete, record.problem) == (False, "client_left")
    assert record.response.startswith(b"data: {}")


async def test_an_engine_that_dies_in_mid_stream_leaves_a_stream_without_an_end(rig: Rig, engine: Engine) -> None:
    async def die(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        return False

    engine.script = die
    async with httpx.AsyncClient(base_url=rig.url) as http:
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
        await anyio.sleep(0.02)
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
    async with httpx.AsyncClient(base_url=rig.url) as http:
        await http.post("/v1/chat/completions", json=BODY)
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 502
    assert len(calls) == 2


async def test_an_engine_that_takes_too_long_gives_504(engine: Engine, tmp_path: Path) -> None:
    engine.script = hang
    async with (
        running_tap(tmp_path, engine.port, first_byte_seconds=0.1) as rig,
        httpx.AsyncClient(base_url=rig.url) as http,
    ):
        got = await http.post("/v1/chat/completions", json=BODY)
        assert (got.status_code, got.json()["error"]["code"]) == (504, "upstream_timeout")
        with anyio.fail_after(5):
            await engine.left.wait()
        assert (await http.get("/nowhere")).status_code == 404, "the connection goes on"
        (record,) = await rig.records()
        assert (record.status, record.problem) == (504, "timeout")


async def test_a_stream_that_stalls_is_cut(engine: Engine, tmp_path: Path) -> None:
    async def stall(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(STREAM_HEAD + chunk(b"data: 1\n\n"))
        await stream.receive()
        return False

    engine.script = stall
    async with running_tap(tmp_path, engine.port, idle_seconds=0.1) as rig, httpx.AsyncClient(base_url=rig.url) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post("/v1/chat/completions", json=BODY)


async def test_an_engine_that_speaks_no_http_gives_502(http: httpx.AsyncClient, engine: Engine) -> None:
    async def otherwise(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(b"SSH-2.0-OpenSSH\r\n")
        return False

    engine.script = otherwise
    got = await http.post("/v1/chat/completions", json=BODY)
    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_broke")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST /v1/x HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400"),
        (b"GET /v1/x HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
        (post(b"a" * 2000), b"413"),
    ],
)
async def test_malformed_http_is_answered_and_the_connection_closed(
    engine: Engine, tmp_path: Path, sent: bytes, status: bytes
) -> None:
    async with running_tap(tmp_path, engine.port, max_body_bytes=1000) as rig, raw(rig) as client:
        await client.send(sent)
        got = await read_all(client)
    assert got.startswith(b"HTTP/1.1 " + status)
    assert b'{"error":{"message"' in got
    assert engine.asked == []


async def test_a_client_that_never_finishes_its_request_is_let_go(engine: Engine, tmp_path: Path) -> None:
    async with (
        running_tap(tmp_path, engine.port, request_seconds=0.1, connect_seconds=0.2) as rig,
        raw(rig) as client,
    ):
        await client.send(b"POST /v1/x HTTP/1.1\r\nX: a")
        assert await read_all(client) == b""


async def test_agents_are_served_while_the_spool_is_broken(engine: Engine, tmp_path: Path) -> None:
    tmp_path.joinpath("spool").write_text("a file where the directory should be")
    async with running_tap(tmp_path, engine.port) as rig, httpx.AsyncClient(base_url=rig.url) as http:
        for _ in range(3):
            assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        with anyio.fail_after(5):
            while rig.tap.spool.taking:  # noqa: ASYNC110 - a thread's state is no event
                await anyio.sleep(0.01)
        got = await http.post("/v1/feedback", json={"response_id": "r", "outcome": 1})
        assert (got.status_code, got.json()["error"]["code"]) == (503, "spool_unavailable")


async def test_too_many_connections_are_turned_away(engine: Engine, tmp_path: Path) -> None:
    async with running_tap(tmp_path, engine.port, max_connections=1) as rig, raw(rig) as first:
        await first.send(post())
        await first.receive()
        async with raw(rig) as second:
            assert (await read_all(second)).startswith(b"HTTP/1.1 503")


# -- feedback ----------------------------------------------------------------------------------------------------------


async def test_feedback_is_written_down(http: httpx.AsyncClient, rig: Rig, engine: Engine) -> None:
    got = await http.post(
        "/v1/feedback", json={"response_id": "r1", "outcome": 1}, headers={"x-evolved-tenant": "acme"}
    )
    assert got.status_code == 202
    (record,) = await rig.records()
    assert isinstance(record, Feedback)
    assert (record.id, record.response_id, record.outcome, record.tenant) == (got.json()["id"], "r1", 1.0, "acme")
    assert engine.asked == []


async def test_bad_feedback_is_answered_with_the_field_at_fault(http: httpx.AsyncClient, rig: Rig) -> None:
    got = await http.post("/v1/feedback", json={"response_id": "r1", "outcome": "fine"})
    assert got.status_code == 422
    assert got.json()["error"]["param"] == "outcome"
    assert "number from 0" in got.json()["error"]["message"]
    await rig.nothing_kept()


async def test_feedback_is_posted(http: httpx.AsyncClient) -> None:
    got = await http.get("/v1/feedback")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")


# -- the process -------------------------------------------------------------------------------------------------------


async def test_metrics_are_on_the_admin_port_alone(http: httpx.AsyncClient, rig: Rig) -> None:
    await http.post("/v1/chat/completions", json=BODY)
    await http.post("/v1/feedback", json={})
    await rig.records()
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


def wait_for(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def test_sigterm_ends_the_process_with_its_spool_flushed(tmp_path: Path) -> None:
    port, admin = unused_port(), unused_port()
    code = (
        "from daemon.tap.server import main; from daemon.tap.settings import TapSettings as S;"
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
