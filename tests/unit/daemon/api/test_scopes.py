"""The control API behind its keys: open on this machine while there is none; then every route has a scope, and each key
opens what its scope says, nothing else."""

import base64
from collections import Counter
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from actors.messages import Directive
from daemon.api.admin import AdminOnly, admin_keys, refusal_figures
from daemon.api.auth_throttle import AuthThrottle
from daemon.api.openapi import served
from daemon.api.scopes import NEEDED
from daemon.api.tasks import TaskApi
from daemon.errors import ConfigError
from daemon.figures import Figures
from daemon.tap.errors import KeysUnusable
from daemon.tap.keys import OPERATORS, KeyRing, Scope, add_key, opens, revoke_key
from tests.support.experience import Desk, lesson
from tests.support.fakes import Clock

pytestmark = pytest.mark.anyio
SCOPES: tuple[Scope, ...] = ("agent", "environment", "read", "content", "operate", "teach", "admin")
BODIES = {
    "/api/experience/search": {"text": "fly", "tenant": "acme"},
    "/api/promote": {"version": 7},
    "/api/rollback": {"reason": "x"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def key(path: Path, scope: Scope = "admin") -> str:
    return add_key(path, tenant="acme", scope=scope, now=0.0)[0]


# -- which key opens what ----------------------------------------------------------------------------------------------


class Door:
    """The control API behind its keys, one of each scope."""

    def __init__(self, app: Starlette, desk: Desk, texts: dict[Scope, str]) -> None:
        self.desk, self.routes, self.texts = desk, app.routes, texts
        self._app, self._asked = app, 0

    async def ask(self, scope: Scope, method: str, path: str, body: object = None) -> httpx.Response:
        """Each time from another address: how often one may try a wrong key is not what this is about."""
        self._asked += 1
        headers = {"x-evolved-key": self.texts[scope]}
        # Behind the door the desk has nobody to give orders to: 500 is as far as they come.
        client = (f"10.{self._asked}", 1)
        transport = httpx.ASGITransport(self._app, client=client, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            return await http.request(method, path, json=body, headers=headers)

    def id(self, scope: Scope) -> str:
        return self.texts[scope][4:16]


@pytest.fixture
def door(desk: Desk, path: Path) -> Door:
    texts = {scope: key(path, scope) for scope in SCOPES}
    return Door(desk.app(KeyRing(path, clock=lambda: 2.0)), desk, texts)


async def test_every_route_has_a_scope_and_every_line_of_the_table_a_route(door: Door) -> None:
    nobody = TaskApi.__new__(TaskApi)  # its routes are there with a sandbox only; they need nothing of it to be listed
    assert set(NEEDED) == served([*door.routes, *nobody.routes()])


async def test_a_key_opens_what_its_scope_says_and_is_told_of_the_scope_it_lacks(door: Door) -> None:
    for (method, route), wanted in NEEDED.items():
        path = route.replace("{id}", "nobody").replace("{name}", "nobody")
        if (method, route) not in served(door.routes):  # with a sandbox only
            continue
        for scope in SCOPES:
            answer = await door.ask(scope, method, path, BODIES.get(route, {}) if method == "POST" else None)
            where = f"{scope}: {method} {path}"
            if scope not in OPERATORS:
                assert answer.status_code == 401, where
            elif any(opens(scope, one) for one in wanted):
                assert answer.status_code not in (401, 403), f"{where}: {answer.text}"
            else:
                said = answer.json()["error"]["message"]
                assert answer.status_code == 403, where
                assert f"a key of scope {wanted[0]}, and {door.id(scope)} has {scope}" in said
                assert f"evolved keys add --scope {wanted[0]} --tenant" in said
    opened = {scope: (await door.ask(scope, "GET", "/")).status_code for scope in SCOPES if scope in OPERATORS}
    assert opened == dict.fromkeys(("read", "content", "operate", "admin"), 200) | {"teach": 403}, "the dashboard"


async def test_going_past_the_gate_takes_an_admin(door: Door) -> None:
    order = {"version": 7, "force": True, "reason": "checked by hand"}
    refused = await door.ask("operate", "POST", "/api/promote", order)
    assert (refused.status_code, "scope admin" in refused.text) == (403, True)
    assert (await door.ask("operate", "POST", "/api/promote", {"version": 7})).status_code == 404
    assert (await door.ask("admin", "POST", "/api/promote", order)).status_code == 404


async def test_a_teaching_key_knows_its_own_tenant_alone_and_drafts_what_an_operator_approves(door: Door) -> None:
    await door.desk.store.save([lesson("mine"), lesson("theirs", tenant="other")])
    listed = (await door.ask("teach", "GET", "/api/experience")).json()
    assert [one["lesson"]["id"] for one in listed] == ["mine"]
    assert (await door.ask("teach", "GET", "/api/experience?tenant=other")).status_code == 403
    assert (await door.ask("teach", "GET", "/api/experience/mine")).status_code == 200
    theirs, nobodys = [await door.ask("teach", "GET", f"/api/experience/{one}") for one in ("theirs", "nobody")]
    assert (theirs.status_code, theirs.text.replace("theirs", "nobody")) == (404, nobodys.text)
    for tenant, status in (("other", 403), ("acme", 200)):
        question = {"text": "do mine", "tenant": tenant}
        assert (await door.ask("teach", "POST", "/api/experience/search", question)).status_code == status
        draft = {"when_to_use": "always", "content": "look twice", "tenant": tenant}
        answer = await door.ask("teach", "POST", "/api/experience", draft)
        assert answer.status_code == status
    made = answer.json()["lesson"]
    assert made["state"] == "candidate"
    change, path = {"change": "activate", "reason": "read it"}, f"/api/experience/{made['id']}/state"
    assert (await door.ask("teach", "POST", path, change)).status_code == 403
    assert (await door.ask("operate", "POST", path, change)).json()["state"] == "active"
    told = await door.desk.store.newest(Directive)
    assert {one.details["by"] for one in told} == {door.id("teach"), door.id("operate")}


# -- the door itself ---------------------------------------------------------------------------------------------------


async def test_without_an_operators_key_it_is_open_and_then_shut_for_good(desk: Desk, path: Path) -> None:
    agent, app = key(path, "agent"), desk.app(KeyRing(path, clock=lambda: 2.0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
        assert (await http.get("/")).status_code == 200
        admin = key(path)
        told = (await http.get("/")).headers["www-authenticate"]
        assert told.startswith("Basic "), "a browser is asked to log in"
        login = base64.b64encode(f"anyone:{admin}".encode()).decode()
        for shown in (f"Bearer {admin}", f"Basic {login}"):
            assert (await http.get("/", headers={"authorization": shown})).status_code == 200
        for origin, status in (("http://evil", 403), ("null", 403), ("http://127.0.0.1", 200)):
            answer = await http.post("/api/freeze", json={}, headers={"x-evolved-key": admin, "origin": origin})
            assert answer.status_code == status, "a page of another site gives no orders"
        revoke_key(path, admin[4:16], now=1.0)
        wrong = (agent.encode(), admin.encode(), b"evk_", b"\xff")
        answers = [await http.get("/", headers={b"x-evolved-key": one}) for one in wrong]
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}
    assert admin not in answers[1].text


async def test_wrong_keys_from_an_address_are_put_off_counted_and_never_shut_out_the_right_one(
    desk: Desk, path: Path
) -> None:
    text, clock, refused, app = key(path), Clock(), Counter[str](), desk.app()
    tries = AuthThrottle(most=3, seconds=60.0, clock=clock)
    guarded = AdminOnly(app, keys=KeyRing(path, clock=clock), routes=app.routes, tries=tries, refused=refused)

    async def ask(shown: str, address: str = "10.0.0.1") -> httpx.Response:
        transport = httpx.ASGITransport(guarded, client=(address, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/", headers={"x-evolved-key": shown} if shown else {})

    answers = [await ask("evk_wrong") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert answers[-1].headers["retry-after"] == "60"
    assert (await ask("evk_wrong", "10.0.0.2")).status_code == 401
    assert [(await ask("")).status_code for _ in range(9)] == [401] * 9  # a browser that has not been asked yet
    assert (await ask(text)).status_code == 200
    clock.now += 60.0
    assert (await ask("evk_wrong")).status_code == 401
    assert refused == {"wrong_key": 5, "too_many_tries": 2, "no_key": 9}
    registry = CollectorRegistry()
    registry.register(Figures(refusal_figures, refused))
    assert 'evolved_control_refused_total{reason="too_many_tries"} 2.0' in generate_latest(registry).decode()


def test_the_table_of_addresses_is_bounded_and_forgets_the_silent_ones_first() -> None:
    tries = AuthThrottle(most=2, seconds=60.0, clock=Clock())
    for number in range(5000):
        tries.failed(f"2001:db8::{number}")
        tries.failed("10.0.0.1")
    assert len(tries) == 1024
    assert tries.failed("10.0.0.1") > 0


def test_it_listens_to_others_only_with_an_admin_key_and_over_an_encrypted_way(path: Path) -> None:
    key(path, "agent")
    for keys in (None, path):
        assert (admin_keys(keys, "127.0.0.1", protected=False) is None) == (keys is None)
        with pytest.raises(KeysUnusable, match=r"control\.listen '0\.0\.0\.0'.*evolved keys add --scope admin"):
            admin_keys(keys, "0.0.0.0")
    key(path)
    assert admin_keys(path, "0.0.0.0") is not None
    with pytest.raises(ConfigError, match=r"control\.listen '0\.0\.0\.0'.*control\.tls_cert.*behind_proxy"):
        admin_keys(path, "0.0.0.0", protected=False)
    with pytest.raises(KeysUnusable, match=r"keys.*evolved keys add"):
        admin_keys(path.with_name("none"), "127.0.0.1")
