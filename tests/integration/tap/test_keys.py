"""Keys and opt-out over real sockets: what reaches the engine, what the spool, and what is turned away."""

import json
from pathlib import Path

import pytest

from actors.messages import Feedback
from actors.messages.spool import RawExchange
from daemon.tap.admission import DoorSettings
from daemon.tap.errors import InvalidTapSettings
from daemon.tap.keys import Scope, add_key, revoke_key
from tests.support.engine import Engine
from tests.support.patience import until
from tests.support.tapping import BODY, post, raw, read_all, running_tap

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def key(path: Path, tenant: str = "acme", scope: Scope = "agent") -> str:
    return add_key(path, tenant=tenant, scope=scope, now=0.0)[0]


def files_with(directory: Path, text: str) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.promise
async def test_a_key_names_the_tenant_and_goes_no_further(tmp_path: Path, engine: Engine, keys: Path) -> None:
    text, door = key(keys), DoorSettings(keys_file=str(keys), require_key=True)
    async with running_tap(tmp_path, engine.port, door=door) as rig, rig.http() as http:
        for shown in ({"x-evolved-key": text, "authorization": "Bearer sk-1"}, {"authorization": f"Bearer {text}"}):
            assert (await http.post(CHAT, json=BODY, headers=shown)).status_code == 200
        records = await rig.records(2)
    assert [asked.headers.get("authorization") for asked in engine.asked] == ["Bearer sk-1", None]
    assert all("x-evolved-key" not in asked.headers for asked in engine.asked)
    assert all(isinstance(one, RawExchange) and (one.tenant, one.caller) == ("acme", text[4:16]) for one in records)
    assert files_with(tmp_path, text) == files_with(tmp_path, "sk-1") == []


async def test_who_has_no_key_is_turned_away_in_the_clients_own_format(
    tmp_path: Path, engine: Engine, keys: Path
) -> None:
    text, door = key(keys), DoorSettings(keys_file=str(keys), require_key=True)
    async with running_tap(tmp_path, engine.port, door=door) as rig, rig.http() as http:
        for shown, status, code in (
            ({}, 401, "missing_key"),
            ({"authorization": "Bearer evk_x"}, 401, "invalid_key"),
            ({"x-evolved-key": text, "x-evolved-tenant": "other"}, 403, "wrong_tenant"),
        ):
            got = await http.post(CHAT, json=BODY, headers=shown)
            assert (got.status_code, got.json()["error"]["code"]) == (status, code)
        # The refusal leaves the connection as it was.
        assert (await http.post(CHAT, json=BODY, headers={"x-evolved-key": text})).status_code == 200
        assert (await http.get("/health")).status_code == 200
    assert [asked.line.split()[1] for asked in engine.asked] == [CHAT.encode(), b"/health"]


async def test_a_revoked_key_stops_within_seconds_and_a_new_one_starts(
    tmp_path: Path, engine: Engine, keys: Path
) -> None:
    old, door = key(keys), DoorSettings(keys_file=str(keys), require_key=True)
    async with running_tap(tmp_path, engine.port, door=door) as rig, rig.http() as http:
        assert (await http.post(CHAT, json=BODY, headers={"x-evolved-key": old})).status_code == 200
        revoke_key(keys, old[4:16], now=1.0)
        new = key(keys)

        async def works() -> bool:
            return (await http.post(CHAT, json=BODY, headers={"x-evolved-key": new})).status_code == 200

        await until(works, "the new key works")
        assert (await http.post(CHAT, json=BODY, headers={"x-evolved-key": old})).status_code == 401


async def test_the_admin_port_takes_an_admin_key_and_no_agents(tmp_path: Path, engine: Engine, keys: Path) -> None:
    agent, admin = key(keys), key(keys, "ops", "admin")
    door = DoorSettings(keys_file=str(keys))
    async with running_tap(tmp_path, engine.port, door=door) as rig, rig.http(rig.admin) as http:
        assert (await http.get("/healthz")).status_code == 200
        for shown, status in (({}, 401), ({"x-evolved-key": agent}, 401), ({"authorization": f"Bearer {admin}"}, 200)):
            assert (await http.get("/metrics", headers=shown)).status_code == status
        public = await http.post(rig.url + CHAT, json=BODY, headers={"x-evolved-key": admin})
        assert public.status_code == 403


async def test_an_admin_port_for_the_network_does_not_start_without_a_key(tmp_path: Path, engine: Engine) -> None:
    with pytest.raises(InvalidTapSettings, match=r"tap\.admin_host '0\.0\.0\.0'.*evolved keys add --scope admin"):
        async with running_tap(tmp_path, engine.port, admin_host="0.0.0.0"):
            pass


@pytest.mark.promise
async def test_who_opts_out_leaves_nothing_by_header_or_by_metadata(tmp_path: Path, engine: Engine) -> None:
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        for body, headers in (
            (BODY, {"x-evolved-opt-out": "1"}),
            ({**BODY, "metadata": {"evolved_opt_out": "true"}}, {}),
        ):
            assert (await http.post(CHAT, json=body, headers=headers)).status_code == 200
        got = await http.post(
            "/v1/feedback", json={"response_id": "r", "outcome": 1}, headers={"x-evolved-opt-out": "1"}
        )
        assert (got.status_code, got.json()["kept"]) == (202, False)
        await rig.nothing_kept()


async def test_feedback_belongs_to_the_keys_tenant_and_may_come_as_a_list(
    tmp_path: Path, engine: Engine, keys: Path
) -> None:
    text, door = key(keys), DoorSettings(keys_file=str(keys), require_key=True)
    said = [
        {"custom_id": "order-1", "outcome": True},
        {"trajectory_id": "t", "step": 2, "outcome": 0},
        {"response_id": "r", "text": "wrong date"},
    ]
    async with running_tap(tmp_path, engine.port, door=door) as rig, rig.http() as http:
        assert (await http.post("/v1/feedback", json=said)).status_code == 401
        got = await http.post("/v1/feedback", json=said, headers={"x-evolved-key": text})
        assert got.status_code == 202
        records = await rig.records(3)
    found = [one for one in records if isinstance(one, Feedback)]
    assert [one.id for one in found] == [one["id"] for one in got.json()["data"]]
    assert [(one.tenant, one.kind, one.custom_id, one.step) for one in found] == [
        ("acme", "outcome", "order-1", None),
        ("acme", "step", "", 2),
        ("acme", "comment", "", None),
    ]


async def test_a_key_with_bytes_that_no_key_has_is_answered_and_harms_nobody(
    tmp_path: Path, engine: Engine, keys: Path
) -> None:
    key(keys)
    async with running_tap(tmp_path, engine.port, door=DoorSettings(keys_file=str(keys))) as rig:
        body = json.dumps(BODY).encode()
        for header in (b"x-evolved-key: evk_\xff\xfe", b"x-evolved-key: " + b"e" * 9000, b"Authorization: Basic evk_!"):
            async with raw(rig) as stream:
                await stream.send(post(body, header, b"Connection: close"))
                answer = await read_all(stream)
                assert answer.split(b" ")[1] == (b"200" if header.startswith(b"Auth") else b"401")
