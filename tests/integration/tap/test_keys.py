"""Keys and opt-out over real sockets: what reaches the engine, what the spool, and what is turned away."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.messages import Exchange, Feedback
from daemon.tap.admission import DoorSettings
from daemon.tap.keys import Scope, add_key, revoke_key
from tests.support.engine import Engine
from tests.support.patience import until
from tests.support.tapping import BODY, raw, read_all, running_tap

pytestmark = pytest.mark.anyio
CHAT, HEALTH, METRICS, FEEDBACK = "/v1/chat/completions", "/health", "/metrics", "/v1/feedback"
PASSES, TAKEN = (200, ""), (202, "")
MISSING, INVALID = (401, "missing_key"), (401, "invalid_key")
SCOPED, TENANT = (403, "wrong_scope"), (403, "wrong_tenant")
OWN, BEARER = "x-evolved-key: ", "authorization: Bearer "
TABLE: list[tuple[str, str, list[str], tuple[int, str]]] = [
    ("agents", CHAT, [], MISSING),
    ("agents", CHAT, [BEARER + "sk-1"], MISSING),
    ("agents", CHAT, [OWN + "AGENT", BEARER + "sk-1"], PASSES),
    ("agents", CHAT, [BEARER + "AGENT"], PASSES),
    ("agents", CHAT, [OWN + "AGENT", "x-evolved-tenant: acme"], PASSES),
    ("agents", CHAT, ["authorization: Basic PASSWORD"], PASSES),
    ("agents", CHAT, ["origin: https://shop.example"], MISSING),
    ("agents", CHAT, [OWN + "AGENT", "origin: https://shop.example"], PASSES),
    ("agents", CHAT, [OWN + "AGENT", "x-evolved-tenant: other"], TENANT),
    ("agents", CHAT, [OWN + "AGENTx"], INVALID),
    ("agents", CHAT, [OWN + "EXPIRED"], INVALID),
    ("agents", CHAT, [OWN + "REVOKED"], INVALID),
    ("agents", CHAT, [OWN + "evk_000000000000_x"], INVALID),
    ("agents", CHAT, [OWN + "sk-1"], INVALID),
    ("agents", CHAT, [OWN + "evk_\xff\xfe"], INVALID),
    ("agents", CHAT, [OWN + "e" * 9000], INVALID),
    ("agents", CHAT, [OWN + "ADMIN"], SCOPED),
    ("agents", CHAT, [OWN + "ENVIRONMENT"], SCOPED),
    ("agents", HEALTH, [], PASSES),
    ("agents", FEEDBACK, [], MISSING),
    ("agents", FEEDBACK, [OWN + "AGENT"], TAKEN),
    ("admin", "/healthz", [], PASSES),
    ("admin", METRICS, [], MISSING),
    ("admin", METRICS, [OWN + "AGENT"], INVALID),
    ("admin", METRICS, [BEARER + "AGENT"], INVALID),
    ("admin", METRICS, [OWN + "TEACH"], SCOPED),
    ("admin", METRICS, [OWN + "READ"], PASSES),
    ("admin", METRICS, [BEARER + "ADMIN"], PASSES),
    ("admin", METRICS, ["authorization: Basic LOGIN"], PASSES),
]
"""The port, what is asked there, headers (KEY: one of that kind), and what is answered."""


class Keys:
    def __init__(self, path: Path) -> None:
        self.path = path
        kinds: tuple[Scope, ...] = ("agent", "environment", "read", "teach", "admin")
        self.texts = {scope.upper(): self.add(scope) for scope in kinds}
        self.texts["REVOKED"], self.texts["EXPIRED"] = self.add("agent"), self.add("agent", expires=1.0)
        revoke_key(path, self.texts["REVOKED"][4:16], now=1.0)
        self.texts["LOGIN"] = base64.b64encode(f"anyone:{self.texts['ADMIN']}".encode()).decode()
        self.texts["PASSWORD"] = base64.b64encode(f"anyone:{self.texts['AGENT']}".encode()).decode()
        self.door = DoorSettings(keys_file=str(path), require_key=True)

    def add(self, scope: Scope, expires: float | None = None) -> str:
        return add_key(self.path, tenant="acme", scope=scope, now=0.0, expires=expires)[0]

    def headers(self, lines: list[str]) -> Iterator[bytes]:
        for line in lines:
            for kind, text in self.texts.items():
                line = line.replace(kind, text)
            yield line.encode("latin-1") + b"\r\n"


def files_with(directory: Path, text: str) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest.mark.promise
async def test_who_may_do_what_at_the_taps_two_ports(tmp_path: Path, engine: Engine) -> None:
    keys = Keys(tmp_path / "keys.json")
    bodies = {FEEDBACK: [{"custom_id": "order-1", "outcome": 1}, {"response_id": "r", "text": "wrong date"}]}
    refusals, named = set[bytes](), list[str]()
    async with running_tap(tmp_path, engine.port, door=keys.door) as rig:
        for port, path, lines, (status, code) in TABLE:
            method = b"POST" if path in (CHAT, FEEDBACK) else b"GET"
            body = json.dumps(bodies.get(path, BODY)).encode()
            head = b"%b %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % (method, path.encode())
            head += b"".join(keys.headers(lines)) + b"Content-Type: application/json\r\n"
            head += b"Content-Length: %d\r\n\r\n" % len(body)
            async with raw(rig, rig.bound.admin_port if port == "admin" else 0) as stream:
                await stream.send(head + body)
                answer = await read_all(stream)
            where = f"{port} {path} {lines}: {answer[:300]!r}"
            assert int(answer.split(b" ")[1]) == status, where
            if code:
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == code, where
                assert b"evolved keys" in answer or code in ("wrong_tenant", "wrong_scope"), where
                assert not [text for text in keys.texts.values() if text.encode() in answer], where
            if port == "agents" and code == "invalid_key":
                refusals.add(answer)
            if status == 202:
                named = [one["id"] for one in json.loads(answer.partition(b"\r\n\r\n")[2])["data"]]
        records = await rig.records(7)
    assert len(refusals) == 1, "nobody learns why a key opens nothing"
    asked = [one for one in engine.asked if one.line.startswith(b"POST")]
    assert [one.headers.get("authorization") for one in asked] == ["Bearer sk-1", *[None] * 4]
    assert all("x-evolved-key" not in one.headers for one in asked)
    assert {one.tenant for one in records} == {"acme"}
    calls = [one for one in records if isinstance(one, Exchange)]
    assert [one.caller for one in calls] == [keys.texts["AGENT"][4:16]] * 5
    assert [one.id for one in records if isinstance(one, Feedback)] == named
    assert files_with(tmp_path, keys.texts["AGENT"]) == files_with(tmp_path, "sk-1") == []


async def test_a_revoked_key_stops_within_seconds_and_a_new_one_starts(tmp_path: Path, engine: Engine) -> None:
    keys = Keys(tmp_path / "keys.json")
    old = keys.texts["AGENT"]
    async with running_tap(tmp_path, engine.port, door=keys.door) as rig, rig.http() as http:
        assert (await http.post(CHAT, json=BODY, headers={"x-evolved-key": old})).status_code == 200
        revoke_key(keys.path, old[4:16], now=1.0)
        new = keys.add("agent")

        async def works() -> bool:
            return (await http.post(CHAT, json=BODY, headers={"x-evolved-key": new})).status_code == 200

        await until(works, "the new key works")
        assert (await http.post(CHAT, json=BODY, headers={"x-evolved-key": old})).status_code == 401


async def test_what_is_kept_is_counted_by_tenant_and_of_a_web_page_is_nothing(tmp_path: Path, engine: Engine) -> None:
    sent = len(json.dumps(BODY, separators=(",", ":")))
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        for _ in range(2):
            await http.post(CHAT, json=BODY, headers={"x-evolved-tenant": "acme"})
        page = await http.post(CHAT, json=BODY, headers={"origin": "https://shop.example"})
        told = await http.post(
            FEEDBACK, json={"response_id": "r", "outcome": 1}, headers={"origin": "https://a.example"}
        )
        assert (page.status_code, told.status_code, told.json()["error"]["code"]) == (200, 403, "other_site")
        await rig.records(2)
        await rig.nothing_kept()
        metrics = (await http.get(rig.admin + "/metrics")).text
    assert 'evolved_tap_kept_calls_total{tenant="acme"} 2.0' in metrics
    assert 'evolved_tap_not_kept_total{reason="other_site"} 1.0' in metrics
    (kept,) = [line for line in metrics.splitlines() if line.startswith('evolved_tap_kept_bytes_total{tenant="acme"}')]
    assert float(kept.rpartition(" ")[2]) >= 2 * sent


@pytest.mark.promise
async def test_who_opts_out_leaves_nothing_by_header_or_by_metadata(tmp_path: Path, engine: Engine) -> None:
    out = {"x-evolved-opt-out": "1"}
    async with running_tap(tmp_path, engine.port) as rig, rig.http() as http:
        large = {**BODY, "metadata": {"evolved_opt_out": "true"}, "user": "x" * 1_000_000}
        for body, headers in ((BODY, out), ({**BODY, "metadata": {"evolved_opt_out": "true"}}, {}), (large, {})):
            assert (await http.post(CHAT, json=body, headers=headers)).status_code == 200
        got = await http.post(FEEDBACK, json={"response_id": "r", "outcome": 1}, headers=out)
        assert (got.status_code, got.json()["kept"]) == (202, False)
        await rig.nothing_kept()
