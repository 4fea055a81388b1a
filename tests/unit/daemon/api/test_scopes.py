"""Scopes of operators' keys: every route has one, and each key opens what its scope says, nothing else."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from actors.store import Store
from daemon.api.admin import AdminOnly, admin_keys
from daemon.api.openapi import served
from daemon.api.scopes import NEEDED, allowed
from daemon.composition.tasks import Tasks
from daemon.tap.keys import LADDER, OPERATORS, KeyRing, Scope, add_key, opens, read_keys, revoke_key
from tests.support.experience import Desk, lesson

pytestmark = pytest.mark.anyio
SCOPES: tuple[Scope, ...] = ("agent", "environment", "read", "content", "operate", "teach", "admin")
BODIES = {
    "/api/experience/search": {"text": "fly", "tenant": "acme"},
    "/api/promote": {"version": 7},
    "/api/rollback": {"reason": "x"},
}


class Door:
    """The control API behind its keys, one of each scope."""

    def __init__(self, app: Starlette, desk: Desk, keys: Path) -> None:
        self.desk, self.routes, self.path = desk, app.routes, keys
        self.texts = {scope: add_key(keys, tenant="acme", scope=scope, now=1.0)[0] for scope in SCOPES}
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
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()
    keys = tmp_path / "keys.json"
    add_key(keys, tenant="acme", scope="agent", now=1.0)
    desk = Desk(store, tmp_path)
    yield Door(desk.app(KeyRing(keys, clock=lambda: 2.0)), desk, keys)
    await store.aclose()


async def test_every_route_has_a_scope_and_every_line_of_the_table_a_route(door: Door) -> None:
    nobody = Tasks.__new__(Tasks)  # its routes are there with a sandbox only; they need nothing of it to be listed
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
            elif allowed(scope, wanted):
                assert answer.status_code not in (401, 403), f"{where}: {answer.text}"
            else:
                said = answer.json()["error"]["message"]
                assert answer.status_code == 403, where
                assert f"a key of scope {wanted[0]}, and {door.id(scope)} has {scope}" in said
                assert f"evolved keys add --scope {wanted[0]} --tenant" in said


async def test_the_dashboard_opens_with_a_reading_key_and_says_why_not_to_an_agents_framework(door: Door) -> None:
    for scope in ("read", "content", "operate", "admin"):
        assert (await door.ask(scope, "GET", "/")).status_code == 200
    assert (await door.ask("teach", "GET", "/")).status_code == 403


async def test_a_route_that_is_not_in_the_table_takes_an_admin(tmp_path: Path) -> None:
    async def page(request: Request) -> Response:
        return Response("here")

    keys, routes = tmp_path / "keys.json", [Route("/api/new", page, methods=["GET", "POST"])]
    texts = {scope: add_key(keys, tenant="ops", scope=scope, now=1.0)[0] for scope in SCOPES}
    guarded = AdminOnly(Starlette(routes=routes), keys=admin_keys(keys, "127.0.0.1"), routes=routes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://here") as http:
        for method in ("GET", "POST", "HEAD"):
            for scope, text in texts.items():
                answer = await http.request(method, "/api/new", headers={"x-evolved-key": text})
                assert (answer.status_code == 200) == (scope == "admin")


async def test_going_past_the_gate_takes_an_admin(door: Door) -> None:
    order = {"version": 7, "force": True, "reason": "checked by hand"}
    refused = await door.ask("operate", "POST", "/api/promote", order)
    assert (refused.status_code, "scope admin" in refused.text) == (403, True)
    assert (await door.ask("operate", "POST", "/api/promote", {"version": 7})).status_code == 404
    assert (await door.ask("admin", "POST", "/api/promote", order)).status_code == 404


async def test_a_teaching_key_knows_its_own_tenant_alone(door: Door) -> None:
    await door.desk.store.save([lesson("mine"), lesson("theirs", tenant="other")])
    listed = (await door.ask("teach", "GET", "/api/experience")).json()
    assert [one["lesson"]["id"] for one in listed] == ["mine"]
    assert (await door.ask("teach", "GET", "/api/experience?tenant=other")).status_code == 403
    assert (await door.ask("teach", "GET", "/api/experience/mine")).status_code == 200
    theirs, nobodys = [await door.ask("teach", "GET", f"/api/experience/{one}") for one in ("theirs", "nobody")]
    assert (theirs.status_code, theirs.text.replace("theirs", "nobody")) == (404, nobodys.text)
    for tenant, status in (("acme", 200), ("other", 403)):
        question = {"text": "do mine", "tenant": tenant}
        assert (await door.ask("teach", "POST", "/api/experience/search", question)).status_code == status
        draft = {"when_to_use": "always", "content": "look twice", "tenant": tenant}
        assert (await door.ask("teach", "POST", "/api/experience", draft)).status_code == status


async def test_what_a_teaching_key_adds_is_a_draft_that_an_operator_approves(door: Door) -> None:
    draft = {"when_to_use": "always", "content": "look twice", "tenant": "acme"}
    made = (await door.ask("teach", "POST", "/api/experience", draft)).json()["lesson"]
    assert made["state"] == "candidate"
    change, path = {"change": "activate", "reason": "read it"}, f"/api/experience/{made['id']}/state"
    assert (await door.ask("teach", "POST", path, change)).status_code == 403
    assert (await door.ask("operate", "POST", path, change)).json()["state"] == "active"
    told = await door.desk.store.directives()
    assert {one.details["by"] for one in told} == {door.id("teach"), door.id("operate")}


async def test_every_key_of_the_operators_side_shuts_it_for_those_without(tmp_path: Path) -> None:
    for scope in SCOPES:
        path = tmp_path / f"{scope}.json"
        add_key(path, tenant="ops", scope=scope, now=1.0)
        assert KeyRing(path, clock=lambda: 2.0).guarded == (scope in OPERATORS)


def test_the_ladder_goes_one_way_and_teaching_stands_beside_it() -> None:
    for low, high in pairwise(LADDER):
        assert opens(high, low)
        assert not opens(low, high)
    assert [scope for scope in SCOPES if opens(scope, "teach")] == ["teach", "admin"]
    assert [scope for scope in SCOPES if opens("teach", scope)] == ["teach"]
    assert [scope for scope in SCOPES if opens("admin", scope)] == ["read", "content", "operate", "teach", "admin"]


def test_key_files_of_an_earlier_evolved_open_what_they_did(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text, key = add_key(path, tenant="ops", scope="admin", now=1.0)
    path.write_bytes(msgspec.json.encode({"schema": 1, "keys": [msgspec.to_builtins(key)]}))
    assert KeyRing(path, clock=lambda: 2.0).find(text.encode()) == key
    assert revoke_key(path, key.id, now=3.0) is not None
    assert [one.scope for one in read_keys(path)] == ["admin"]
