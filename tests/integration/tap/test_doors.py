"""Other doors than a plain port: TLS, the mirror's port; and bodies too large to be held."""

import ssl
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from structlog.testing import capture_logs

from tests.support.certificates import Certificate, self_signed
from tests.support.engine import Asked, Engine, answer, completion
from tests.support.patience import until, within
from tests.support.tapping import BODY, post, raw, read_all, running_tap

pytestmark = pytest.mark.anyio


async def test_agents_may_come_over_tls(tmp_path: Path, engine: Engine, certificate: Certificate) -> None:
    trust = ssl.create_default_context(cafile=str(certificate.chain))
    settings = {"tls_cert": str(certificate.chain), "tls_key": str(certificate.key)}
    async with (
        running_tap(tmp_path, engine.port, **settings) as rig,
        httpx.AsyncClient(base_url=rig.url, verify=trust, timeout=within()) as http,
    ):
        for _ in range(2):
            assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 200
        streamed = await http.post("/v1/chat/completions", json={**BODY, "stream": True})
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert rig.tap.counts.connections == 1


async def test_a_certificate_that_is_renewed_is_shown_and_one_that_is_broken_is_not(
    tmp_path: Path, engine: Engine
) -> None:
    (tmp_path / "new").mkdir()
    old, new = self_signed(tmp_path), self_signed(tmp_path / "new")

    async def shown() -> str:
        address = ("127.0.0.1", rig.bound.port)
        return await anyio.to_thread.run_sync(lambda: ssl.get_server_certificate(address, timeout=within()))

    async with running_tap(tmp_path, engine.port, tls_cert=str(old.chain), tls_key=str(old.key)) as rig:
        before = await shown()
        old.key.write_text("no key")
        with capture_logs() as said:
            await until(lambda: "tls_certificate_unusable" in [one["event"] for one in said], "the tap says so")
        assert await shown() == before
        old.key.write_bytes(new.key.read_bytes())
        old.chain.write_bytes(new.chain.read_bytes())

        async def renewed() -> bool:
            return await shown() == new.chain.read_text()

        await until(renewed, "the new one is shown")


async def test_a_mirrored_request_is_kept_without_an_answer(tmp_path: Path, engine: Engine) -> None:
    async with running_tap(tmp_path, engine.port, mirror_port=0) as rig:
        async with rig.http(f"http://127.0.0.1:{rig.bound.mirror_port}") as mirror:
            got = await mirror.post("/v1/chat/completions", json=BODY, headers={"x-evolved-trajectory": "t"})
            assert (got.status_code, got.content) == (204, b"")
            assert (await mirror.get("/v1/models")).status_code == 204
            assert (await mirror.post("/pause", json={})).status_code == 204
            opted_out = {"x-evolved-opt-out": "1"}
            assert (await mirror.post("/v1/chat/completions", json=BODY, headers=opted_out)).status_code == 204
        (record,) = await rig.records()
    assert (record.source, record.status, record.hints.trajectory_id) == ("mirror", 0, "t")
    assert engine.asked == [], "a mirror sends nothing on"


async def test_a_body_above_the_hold_reaches_the_engine_before_it_is_whole(tmp_path: Path, engine: Engine) -> None:
    async def head_then_body(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        await stream.send(answer(200, completion(tokens=False)))
        return True

    engine.script = head_then_body
    body = b"x" * 300_000
    async with running_tap(tmp_path, engine.port) as rig, raw(rig) as client:
        whole = post(body, path=b"/v1/embeddings")
        await client.send(whole[:150_000])
        await until(lambda: engine.dialled > 0, "the upload reaches the engine")
        assert engine.asked == [], "only a part of it can be there"
        await client.send(whole[150_000:])
        assert (await client.receive()).startswith(b"HTTP/1.1 200")
        # The connection goes on behind an upload.
        await client.send(post())
        assert (await client.receive()).startswith(b"HTTP/1.1 200")
        first, _ = await rig.records(2)
    assert engine.asked[0].body == body
    assert (first.request, first.complete) == (body, True)


async def test_an_upload_too_large_to_keep_passes_and_its_record_says_so(tmp_path: Path, engine: Engine) -> None:
    body = b'{"input": "' + b"x" * 300_000 + b'"}'
    async with running_tap(tmp_path, engine.port, max_capture_bytes=100_000) as rig:
        async with rig.http() as http:
            assert (await http.post("/v1/embeddings", content=body)).status_code in (200, 400)
        (record,) = await rig.records()
    assert engine.asked[0].body == body
    assert (record.request, record.complete, record.problem) == (b"", False, "request_too_large")


async def test_a_chunked_upload_goes_on_in_chunks(tmp_path: Path, engine: Engine) -> None:
    got: list[bytes] = []

    async def read_chunked(engine: Engine, asked: Asked, stream: anyio.abc.ByteStream) -> bool:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += await stream.receive()
        got.append(data)
        await stream.send(answer(200, {}))
        return False

    engine.script = read_chunked
    head = b"POST /v1/files HTTP/1.1\r\nHost: tap\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with running_tap(tmp_path, engine.port) as rig, raw(rig) as client:
        await client.send(head + b"50000\r\n" + b"a" * 0x50000 + b"\r\n")
        await until(lambda: engine.dialled > 0, "the first chunk reaches the engine")
        await client.send(b"3\r\nbcd\r\n0\r\n\r\n")
        assert (await client.receive()).startswith(b"HTTP/1.1 200")
    assert got[0].endswith(b"3\r\nbcd\r\n0\r\n\r\n")


@pytest.mark.promise
async def test_an_agent_that_leaves_in_mid_upload_leaves_no_half_request_behind(tmp_path: Path, engine: Engine) -> None:
    async with running_tap(tmp_path, engine.port) as rig:
        async with raw(rig) as client:
            await client.send(post(b"x" * 400_000, path=b"/v1/files")[:10_000])
            await until(lambda: engine.dialled > 0, "the upload reaches the engine")
        with anyio.fail_after(within()):
            await engine.left.wait()
        async with raw(rig) as client:
            await client.send(post() + b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert (await read_all(client)).count(b"HTTP/1.1 200") == 2
    assert [asked.line.split()[1] for asked in engine.asked] == [b"/v1/chat/completions", b"/v1/models"]
