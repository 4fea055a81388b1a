"""Other doors than a plain port: TLS on both sides, the mirror's port; large bodies; and names in the address."""

import ssl
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest

from actors.messages import Exchange
from daemon.tap.settings import UpstreamSettings
from tests.support.certificates import self_signed
from tests.support.engine import Engine, answer, replies, running_engine
from tests.support.patience import until, within
from tests.support.tapping import BODY, post, raw, running_tap

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


async def test_agents_may_come_over_tls_and_are_shown_a_certificate_that_is_renewed(
    tmp_path: Path, engine: Engine
) -> None:
    (tmp_path / "new").mkdir()
    old, new = self_signed(tmp_path), self_signed(tmp_path / "new")
    trust = ssl.create_default_context(cafile=str(old.chain))

    async def shown() -> str:
        address = ("127.0.0.1", rig.bound.port)
        return await anyio.to_thread.run_sync(lambda: ssl.get_server_certificate(address, timeout=within()))

    async with running_tap(tmp_path, engine.port, tls_cert=str(old.chain), tls_key=str(old.key)) as rig:
        async with httpx.AsyncClient(base_url=rig.url, verify=trust, timeout=within()) as http:
            for body in (BODY, BODY, {**BODY, "stream": True}):
                answered = await http.post(CHAT, json=body)
                assert answered.status_code == 200
            assert answered.text.endswith("data: [DONE]\n\n")
            assert rig.tap.counts.connections == 1
        assert await shown() == old.chain.read_text()
        old.key.write_bytes(new.key.read_bytes())
        old.chain.write_bytes(new.chain.read_bytes())

        async def renewed() -> bool:
            return await shown() == new.chain.read_text()

        await until(renewed, "the new one is shown")


async def test_an_engine_behind_tls_is_reached_if_somebody_vouches_for_it(tmp_path: Path) -> None:
    certificate, context = self_signed(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    async with running_engine(tls=context) as engine:
        https = (UpstreamSettings(url=f"https://localhost:{engine.port}"),)
        async with running_tap(tmp_path / "1", 0, upstreams=https) as rig, rig.http() as http:
            got = await http.post(CHAT, json=BODY)
            assert (got.status_code, got.json()["error"]["code"]) == (502, "upstream_down")
            assert "certificate" in got.json()["error"]["message"].lower()
            assert engine.asked == []
        dialled, ca = engine.dialled, str(certificate.chain)
        async with running_tap(tmp_path / "2", 0, upstreams=https, upstream_ca=ca) as rig, rig.http() as http:
            assert [(await http.post(CHAT, json=BODY)).status_code for _ in range(2)] == [200, 200]
        assert engine.dialled == dialled + 1


async def test_a_mirrored_request_is_kept_without_an_answer(tmp_path: Path, engine: Engine) -> None:
    async with running_tap(tmp_path, engine.port, mirror_port=0) as rig:
        async with rig.http(f"http://127.0.0.1:{rig.bound.mirror_port}") as mirror:
            asked = [
                ("POST", CHAT, BODY, {"x-evolved-trajectory": "t"}),
                ("POST", CHAT, BODY, {"x-evolved-opt-out": "1"}),
                ("POST", "/pause", {}, {}),
                ("GET", "/v1/models", None, {}),
            ]
            for method, path, body, headers in asked:
                got = await mirror.request(method, path, json=body, headers=headers)
                assert (got.status_code, got.content) == (204, b"")
        (record,) = await rig.records()
    assert (record.source, record.status, record.hints.trajectory_id) == ("mirror", 0, "t")
    assert engine.asked == [], "a mirror sends nothing on"


async def test_a_large_body_goes_on_when_it_is_whole_and_is_kept_if_it_is_not_too_large(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.tap.capture.MAX_CAPTURE_BYTES", 400_000)
    engine.script = replies(answer(200, {}))
    bodies = [b"x" * 300_000, b"y" * 500_000]
    async with running_tap(tmp_path, engine.port) as rig, raw(rig) as client:
        # The connection goes on behind a large one.
        for number, body in enumerate((*bodies, b"{}")):
            sent = post(body, path=b"/v1/embeddings")
            await client.send(sent[:-1])
            assert len(engine.asked) == number
            await client.send(sent[-1:])
            assert (await client.receive()).startswith(b"HTTP/1.1 200")
        first, second, _ = await rig.records(3)
    assert [asked.body for asked in engine.asked[:2]] == bodies
    assert (first.request, first.complete) == (bodies[0], True)
    assert (second.request, second.complete) == (b"", False)


@pytest.mark.parametrize("prefix", ["/agents/planner", "/runs/r-7", "/agents/planner/runs/r-7"])
async def test_names_in_the_address_change_nothing_but_the_name(tmp_path: Path, engine: Engine, prefix: str) -> None:
    """Token ids are asked for, feedback is taken, the endpoint and what the engine and a mirror see are the same."""
    async with running_tap(tmp_path, engine.port, mirror_port=0) as rig, rig.http() as http:
        plain, named = [(await http.post(at + CHAT, json=BODY)).content for at in ("", prefix)]
        told = await http.post(prefix + "/v1/feedback", json={"custom_id": "c", "outcome": 1})
        async with rig.http(f"http://127.0.0.1:{rig.bound.mirror_port}") as mirror:
            assert (await mirror.post(prefix + CHAT, json=BODY)).status_code == 204
        records = await rig.records(4)
    assert (told.status_code, plain == named) == (202, True)
    assert engine.asked[0].line == engine.asked[1].line
    assert engine.asked[0].body == engine.asked[1].body
    assert b"return_token_ids" in engine.asked[1].body
    calls = [one for one in records if isinstance(one, Exchange)]
    assert len({one.endpoint for one in calls}) == 1
    agent, run = ("planner" if "agents" in prefix else ""), ("r-7" if "runs" in prefix else "")
    assert [(one.hints.agent, one.hints.trajectory_id) for one in calls] == [("", ""), (agent, run), (agent, run)]
