"""Nothing that an agent sees changes on the way through the tap."""

import json
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import httpx
import openai
import pytest

from actors.messages import encode
from daemon.tap.capture import TOKEN_FIELDS
from tests.support.engine import STREAM_HEAD, Asked, Engine, chunk, stream_pieces
from tests.support.patience import within
from tests.support.tapping import BODY, Rig, post, raw, read_all

pytestmark = pytest.mark.anyio


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
        with anyio.fail_after(within()):
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
        with anyio.fail_after(within()):
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


@pytest.mark.promise
async def test_the_callers_own_authorization_passes_and_is_not_kept(
    http: httpx.AsyncClient, engine: Engine, rig: Rig
) -> None:
    await http.post("/v1/chat/completions", json=BODY, headers={"Authorization": "Bearer k-secret", "Cookie": "s=1"})
    assert engine.asked[0].headers["authorization"] == "Bearer k-secret"
    (record,) = await rig.records()
    assert b"secret" not in encode(record)
