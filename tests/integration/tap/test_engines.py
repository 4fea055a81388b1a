"""Several engines behind one tap, and engines behind TLS."""

import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener

from actors.messages.routes import Routes, write_routes
from daemon.tap.settings import UpstreamSettings
from tests.support.certificates import Certificate
from tests.support.engine import Asked, Engine, answer, completion, running_engine
from tests.support.patience import until, within
from tests.support.ports import free_port
from tests.support.tapping import BODY, Rig, post, raw, running_tap

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def two(directory: Path, **settings: object) -> AsyncIterator[tuple[Rig, Engine, Engine]]:
    async with running_engine() as one, running_engine() as other:
        upstreams = tuple(
            UpstreamSettings(url=f"http://127.0.0.1:{engine.port}", name=name)
            for name, engine in (("one", one), ("other", other))
        )
        async with running_tap(directory, 0, upstreams=upstreams, **settings) as rig:
            yield rig, one, other


async def test_new_trajectories_are_shared_and_each_stays_with_its_engine(tmp_path: Path) -> None:
    async with two(tmp_path) as (rig, one, other), rig.http() as http:
        for _ in range(3):
            for name in ("a", "b"):
                await http.post("/v1/chat/completions", json=BODY, headers={"x-evolved-trajectory": name})
        assert (len(one.asked), len(other.asked)) == (3, 3)
        kept = await rig.records(6)
    engines = {(record.hints.trajectory_id, record.engine) for record in kept}
    assert len(engines) == 2, "one engine for each trajectory"


async def test_a_tool_result_follows_the_call_that_asked_for_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (rig, one, other), rig.http() as http:

        async def call(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
            name = "one" if engine is one else "other"
            tool = {"id": f"call_{name}_{len(engine.asked)}", "type": "function", "function": {"name": "f"}}
            message = {"role": "assistant", "content": None, "tool_calls": [tool]}
            await stream.send(answer(200, {"id": "c", "choices": [{"index": 0, "message": message}]}))
            return True

        one.script = other.script = call
        for _ in range(4):
            first = (await http.post("/v1/chat/completions", json=BODY)).json()["choices"][0]["message"]
            before = (len(one.asked), len(other.asked))
            told = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "3"}
            await http.post("/v1/chat/completions", json={**BODY, "messages": [*BODY["messages"], first, told]})
            after = (len(one.asked), len(other.asked))
            assert after[0] > before[0] if "one" in told["tool_call_id"] else after[1] > before[1]


def away_and(engine: Engine) -> tuple[UpstreamSettings, UpstreamSettings]:
    return (
        UpstreamSettings(url=f"http://127.0.0.1:{free_port()}", name="away"),
        UpstreamSettings(url=f"http://127.0.0.1:{engine.port}", name="here"),
    )


async def test_an_engine_that_is_away_is_made_up_for_by_another(tmp_path: Path, engine: Engine) -> None:
    async with running_tap(tmp_path, 0, upstreams=away_and(engine)) as rig, rig.http() as http:
        assert [(await http.post("/v1/chat/completions", json=BODY)).status_code for _ in range(4)] == [200] * 4
        assert rig.tap.counts.errors["rerouted"] == 2, "every second new trajectory"


async def test_an_engine_that_does_not_answer_for_its_health_gets_nothing_new(tmp_path: Path, engine: Engine) -> None:
    async with running_tap(tmp_path, 0, upstreams=away_and(engine)) as rig, rig.http() as http:
        await until(lambda: not rig.tap.upstreams[0].healthy, "the engine that is away is noticed")
        async with rig.http(rig.admin) as admin:
            metrics = (await admin.get("/metrics")).text
        assert 'evolved_tap_upstream_healthy{engine="away"} 0.0' in metrics
        assert 'evolved_tap_upstream_healthy{engine="here"} 1.0' in metrics
        assert [(await http.post("/v1/chat/completions", json=BODY)).status_code for _ in range(4)] == [200] * 4
        assert rig.tap.counts.errors["rerouted"] == 0


@contextlib.asynccontextmanager
async def tls_engine(certificate: Certificate) -> AsyncIterator[tuple[Engine, int]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    engine = Engine()
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with TLSListener(plain, context, standard_compatible=False) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, engine.serve)
        yield engine, plain.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


async def test_an_engine_behind_tls_is_checked_and_reached(tmp_path: Path, certificate: Certificate) -> None:
    async with tls_engine(certificate) as (engine, port):
        settings = {"upstream": f"https://localhost:{port}", "upstream_ca": str(certificate.chain)}
        async with running_tap(tmp_path, 0, **settings) as rig, rig.http() as http:
            for _ in range(2):
                assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        assert engine.dialled == 1


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path, certificate: Certificate) -> None:
    async with tls_engine(certificate) as (engine, port):
        settings = {"upstream": f"https://localhost:{port}"}
        async with running_tap(tmp_path, 0, **settings) as rig, rig.http() as http:
            got = await http.post("/v1/chat/completions", json=BODY)
    assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_down")
    assert "certificate" in got.json()["error"]["message"].lower()
    assert engine.asked == []


async def test_what_only_the_tap_asked_for_is_hidden_and_kept(
    http: httpx.AsyncClient, rig: Rig, engine: Engine
) -> None:
    got = (await http.post("/v1/chat/completions", json=BODY)).json()
    assert got["choices"][0]["message"] == completion(tokens=True)["choices"][0]["message"]
    assert got.get("prompt_token_ids") is None
    assert got["choices"][0]["logprobs"] is None
    assert got["choices"][0]["token_ids"] is None
    (record,) = await rig.records()
    assert json.loads(record.response)["choices"][0]["token_ids"]


async def test_what_is_streamed_is_hidden_too(http: httpx.AsyncClient, rig: Rig) -> None:
    got = (await http.post("/v1/chat/completions", json={**BODY, "stream": True})).text
    events = [json.loads(line[6:]) for line in got.split("\n") if line.startswith("data: {")]
    assert events
    assert all(choice.get("token_ids") is None for event in events for choice in event["choices"])
    assert all(choice.get("logprobs") is None for event in events for choice in event["choices"])
    assert got.endswith("data: [DONE]\n\n")
    (record,) = await rig.records()
    assert b'"token_ids":[' in record.response.replace(b" ", b"")


async def test_an_agent_that_asks_for_ids_gets_them(http: httpx.AsyncClient) -> None:
    asked = {**BODY, "return_token_ids": True, "logprobs": True}
    got = (await http.post("/v1/chat/completions", json=asked)).json()
    assert got["choices"][0]["token_ids"]
    assert got["choices"][0]["logprobs"]["content"]


async def read_answer(stream: anyio.abc.ByteStream) -> Any:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += await stream.receive()
    return json.loads(body)


async def test_the_canarys_share_is_what_the_daemon_says_and_no_trajectory_is_split(tmp_path: Path) -> None:
    share, wanted = 0.1, 2000
    routes = tmp_path / "routes.json"

    async def answered(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        if not asked.body:
            engine.asked.remove(asked)
            await stream.send(answer(200, {}))
            return True  # the tap asks each of several engines for its health
        number = asked.json["messages"][0]["content"]
        tool = {"id": f"call_{number}_{len(engine.asked)}", "type": "function", "function": {"name": "f"}}
        message = {"role": "assistant", "content": None, "tool_calls": [tool]}
        await stream.send(answer(200, {"id": f"r{len(engine.asked)}", "choices": [{"message": message}]}))
        return True

    async with two(tmp_path, routes_file=str(routes), capture_tokens=False) as (rig, one, other):
        one.script = other.script = answered
        write_routes(routes, Routes(until=time.time() + within(600), canary="other", share=share))
        await until(lambda: rig.tap.router.share == share, "the tap has read its routes")

        async def talk(numbers: range) -> None:
            async with raw(rig) as stream:  # an HTTP library would take most of the test's time
                for number in numbers:
                    messages: list[dict[str, object]] = [{"role": "user", "content": str(number)}]
                    for _ in range(2):
                        await stream.send(post(json.dumps({"model": "m", "messages": messages}).encode()))
                        said = (await read_answer(stream))["choices"][0]["message"]
                        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "ok"}
                        messages += [said, result]

        async with anyio.create_task_group() as group:
            for start in range(8):
                group.start_soon(talk, range(start, wanted, 8))
        seen = [{asked.json["messages"][0]["content"] for asked in engine.asked} for engine in (one, other)]
        assert not seen[0] & seen[1], "all calls of a trajectory go to one engine"
        assert len(one.asked) + len(other.asked) == 2 * wanted
        assert abs(len(seen[1]) - share * wanted) < 3.3 * (share * (1 - share) * wanted) ** 0.5
