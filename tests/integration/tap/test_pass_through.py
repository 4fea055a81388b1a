"""Nothing that an agent sees changes on the way through the tap."""

import json
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import openai
import pytest

from actors.messages import encode
from daemon.tap.capture import TOKEN_FIELDS
from tests.support.engine import STREAM_HEAD, Asked, Engine, chunk, stream_pieces
from tests.support.patience import within
from tests.support.tapping import BODY, Rig, post, raw, running_tap

pytestmark = pytest.mark.anyio


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


@pytest.mark.promise
async def test_the_callers_own_authorization_passes_and_is_not_kept(
    http: httpx.AsyncClient, engine: Engine, rig: Rig
) -> None:
    await http.post("/v1/chat/completions", json=BODY, headers={"Authorization": "Bearer k-secret", "Cookie": "s=1"})
    assert engine.asked[0].headers["authorization"] == "Bearer k-secret"
    (record,) = await rig.records()
    assert b"secret" not in encode(record)


async def test_a_malformed_request_gets_the_engines_own_answer(
    http: httpx.AsyncClient, engine: Engine, rig: Rig
) -> None:
    for body in (b"", b"{", b"[]", b'{"messages": 1', b"\xff\xfe", b'{"model": "desk"}'):
        got = await http.post("/v1/chat/completions", content=body)
        assert (got.status_code, got.json()["error"]["message"][:8]) == (400, "engine: ")
        (record,) = await rig.records()
        assert (record.status, record.request, record.complete) == (400, body, True)


async def test_nothing_is_asked_for_when_switched_off(engine: Engine, tmp_path: Path) -> None:
    async with running_tap(tmp_path, engine.port, capture_tokens=False) as rig, rig.http() as http:
        await http.post("/v1/chat/completions", json=BODY)
        assert engine.asked[0].json == BODY
