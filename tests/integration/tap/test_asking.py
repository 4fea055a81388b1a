"""What the tap asks for, what it answers by itself, and what it keeps."""

import json
from pathlib import Path

import httpx
import pytest

from actors.messages import Feedback
from tests.support.engine import Engine, completion
from tests.support.tapping import BODY, Rig, post, raw, read_all, running_tap

pytestmark = pytest.mark.anyio


async def test_token_fields_are_asked_for(http: httpx.AsyncClient, engine: Engine, rig: Rig) -> None:
    await http.post("/v1/chat/completions", json=BODY)
    sent = engine.asked[0].json
    assert sent == BODY | {"logprobs": True, "return_token_ids": True, "return_weight_versions": True}
    (record,) = await rig.records()
    assert json.loads(record.request) == BODY
    assert record.tokens_requested
    assert json.loads(record.response) == completion(tokens=True)


async def test_nothing_is_asked_for_when_switched_off(engine: Engine, tmp_path: Path) -> None:
    async with running_tap(tmp_path, engine.port, capture_tokens=False) as rig, rig.http() as http:
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


@pytest.mark.promise
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
