"""Live APIs of a daemon: from configuration and by orders; guarded, written down, and gone again."""

import json
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from actors.messages import Directive
from actors.store import Store
from actors.system.lifecycle import Lifecycle
from daemon.api.live import LiveRoutes
from daemon.api.orders import notice
from daemon.collectors.parts import live_figures
from daemon.errors import ConfigError, OrderRefused, StartFailed
from daemon.figures import Figures
from daemon.live import registry
from daemon.live.orders import AddOrder
from daemon.live.registry import Live
from tests.support.http_api import HttpApi, Said
from tests.unit.adapters.live.test_mcp import SUPPORT, started

pytestmark = pytest.mark.anyio
HERE = {"allow_hosts": ["127.0.0.1"]}
SHOP = {"kind": "callables", "functions": ["math:sqrt", "math:floor"], "policy": {"read_only": ["sqrt"]}}


@pytest.fixture(scope="module")
def address():
    with started("json") as url:
        yield url


class Client:
    """The control API's routes; bodies in, bodies out."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def __call__(self, method: str, path: str, body: Any = None, /, status: int = 200) -> Any:
        answer = await self._http.request(method, f"/api/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if status == 200 else answer.json()["error"]["message"]

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self("POST", f"tools/{tool}/call", {"arguments": arguments})

    async def names(self) -> list[str]:
        return [tool["name"] for tool in (await self("GET", "tools"))["tools"]]


@asynccontextmanager
async def running(live: Live) -> AsyncIterator[Client]:
    """`live` as the supervisor runs it, and its routes."""
    ready = anyio.Event()
    life = Lifecycle("live", ready.set)
    async with anyio.create_task_group() as group:
        group.start_soon(live.run, life)
        await ready.wait()
        transport = httpx.ASGITransport(Starlette(routes=LiveRoutes(live).routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://daemon") as http:
            try:
                yield Client(http)
            finally:
                life.drain()


def child(mode: str, **more: Any) -> dict[str, Any]:
    return {"kind": "mcp", "command": [sys.executable, str(SUPPORT / "bad_mcp_server.py"), mode], **more}


def order(url: str, **more: object) -> dict[str, object]:
    return {"name": "docs", "kind": "mcp", "url": url} | more


async def test_what_the_configuration_names_is_there_guarded_and_listed_whenever_the_task_is_started(tmp_path):
    live = Live({**HERE, "shop": SHOP, "here": child("good", policy={"read_only": ["echo"]})}, tmp_path)
    for _ in range(2):
        async with running(live) as client:
            assert (await client.names())[:2] == ["shop__sqrt", "shop__floor"]
            assert (await client.call("here__echo", size=1))["text"] == '{"size": 1}'
            read = await client.call("shop__sqrt", x=9)
            assert (read["text"], read["source"]) == ("3.0", "live")
            # Not on the operator's list: a shadow run does not execute it.
            written = await client.call("shop__floor", x=9.5)
            assert (written["source"], written["error"]) == ("refused", True)
            assert "no tool 'nope'" in await client("POST", "tools/nope/call", {}, status=404)
            installed = (await client("GET", "adapters"))["installed"]
            travel = {"kind": "environment", "name": "travel", "at": "adapters.environments.travel:TravelDesk"}
            assert travel in installed
            assert {"judge", "embedder"} <= {one["kind"] for one in installed}


async def test_an_api_is_added_listed_called_tested_and_removed_while_the_daemon_runs(tmp_path, address, monkeypatch):
    monkeypatch.setattr(registry, "MOST", 1)
    live = Live(HERE, tmp_path)
    async with running(live) as client:
        added = await client("POST", "adapters", order(address, policy={"read_only": ["echo"]}))
        assert [tool["name"] for tool in added["tools"]] == ["echo", "large", "header"]
        assert (added["adapter"]["ok"], added["adapter"]["tools"]) == (True, 3)
        assert await client.names() == ["docs__echo", "docs__large", "docs__header"]
        answer = await client.call("docs__echo", text="hi")
        assert (answer["text"], answer["source"]) == ("hi", "live")
        assert (await client.call("docs__large", size=5))["source"] != "live"
        assert len((await client("POST", "adapters/docs/test", {}))["tools"]) == 3
        (line,) = (await client("GET", "adapters"))["adapters"]
        assert (line["name"], line["origin"], line["where"], line["error"]) == ("docs", "control", address, "")
        metrics = CollectorRegistry()
        metrics.register(Figures(live_figures, live))
        figures = generate_latest(metrics).decode()
        assert 'evolved_live_api_up{api="docs",kind="mcp"} 1.0' in figures
        assert 'evolved_live_api_calls_total{api="docs",what="live"} 1.0' in figures
        assert "there is an API 'docs' already" in await client("POST", "adapters", order(address), status=409)
        another = order(address, name="two")
        assert "1 were added already" in await client("POST", "adapters", another, status=409)
        assert await client("DELETE", "adapters/docs") == {"removed": "docs"}
        assert await client.names() == []
        await client("POST", "tools/docs__echo/call", {}, status=404)
        assert "there are none" in await client("DELETE", "adapters/docs", status=404)


@pytest.mark.promise
async def test_who_added_and_removed_an_api_is_in_the_audit_trail_or_nothing_is_done(tmp_path, address):
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()

    async def note(what: str, details: dict[str, str], by: str) -> None:
        await store.save([notice(what, details, by=by, now=5.0)])

    live, docs = Live(HERE, tmp_path, note=note), AddOrder(name="docs", kind="mcp", url=address)
    async with running(live):
        await live.add(docs, "4f9c02d1a7be")
        await live.remove("docs", "0a0b0c0d0e0f")
        told = sorted(await store.newest(Directive), key=lambda one: one.reason)
        common = {"api": "docs", "kind": "mcp", "where": address}
        assert [(one.reason, one.details) for one in told] == [
            ("adapter_added", {**common, "by": "4f9c02d1a7be"}),
            ("adapter_removed", {**common, "by": "0a0b0c0d0e0f"}),
        ]
        assert store.audit_head.sequence == 2
        await store.aclose()
        (tmp_path / "s.db").unlink()
        (tmp_path / "s.db").mkdir()
        with pytest.raises(OrderRefused, match="audit trail cannot be written"):
            await live.add(docs, "4f9c02d1a7be")
        assert live.health() == []


@pytest.mark.promise
@pytest.mark.parametrize("inside", [False, True])
async def test_an_openapi_document_is_added_by_its_address_and_its_server_is_guarded_too(tmp_path, inside):
    with HttpApi() as shop:
        server = "http://10.255.255.1:9" if inside else shop.url
        document = {
            "openapi": "3.1.0", "info": {"title": "shop", "version": "1"}, "servers": [{"url": server}],
            "paths": {"/things": {"get": {"operationId": "things", "responses": {"200": {"description": "all"}}}}},
        }  # fmt: skip
        shop.answer = lambda asked: Said(body=document if asked.path == "/openapi.json" else {"things": 3})
        async with running(Live(HERE, tmp_path)) as client:
            wanted = order(f"{shop.url}/openapi.json", kind="openapi", options={"server": server})
            added = await client("POST", "adapters", wanted | {"policy": {"read_only": ["*"]}})
            assert [tool["name"] for tool in added["tools"]] == ["things"]
            answer = await client("POST", "tools/docs__things/call", {}, status=403 if inside else 200)
            assert "not public" in answer if inside else answer["structured"] == {"things": 3}


@pytest.mark.promise
async def test_what_was_added_is_there_after_a_restart_and_its_file_holds_no_secret(tmp_path, address):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "docs-token").write_text("s3cret-of-docs")
    options = {"headers": {"x-token": "secret:docs-token"}}
    async with running(Live(HERE, tmp_path)) as client:
        await client("POST", "adapters", order(address, options=options, policy={"read_only": ["*"]}))
    kept = tmp_path / "live" / "adapters.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "s3cret-of-docs" not in kept.read_text()
    async with running(Live(HERE, tmp_path)) as client:
        answer = await client.call("docs__header", name="x-token")
        # The server got it and gave it back; nobody here is shown it.
        assert "s3cret-of-docs" not in json.dumps(answer)
        assert "REDACTED" in answer["text"]
        await client("DELETE", "adapters/docs")
    async with running(Live(HERE, tmp_path)) as client:
        assert (await client("GET", "adapters"))["adapters"] == []


INSIDE = "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        # Nothing that runs here or reaches inside is taken over the network.
        (403, {"kind": "mcp", "options": {"command": ["sh", "-c", "id"]}}, "runs code on this machine"),
        (403, {"kind": "stdio"}, "runs code on this machine"),
        (403, {"kind": "callables", "options": {"functions": ["os:system"]}}, "runs code on this machine"),
        (403, {"kind": "mcp", "url": INSIDE}, "not public"),
        (403, {"kind": "openapi", "url": "http://169.254.169.254/latest/openapi.json"}, "not public"),
        (403, {"kind": "mcp", "url": "https://[::ffff:10.0.0.1]/mcp"}, "not public"),
        (403, {"kind": "mcp", "url": "http://1.1.1.1/mcp"}, r"apis.allow_hosts"),
        (403, {"options": {"headers": {"x": "file:/etc/passwd"}}}, "is not taken here"),
        (403, {"options": {"headers": {"x": "env:HOME"}}}, "is not taken here"),
        (403, {"kind": "openapi", "options": {"auth": {"k": {"key_env": "HOME"}}}}, "is not taken here"),
        # An order that is not right says what is wrong.
        (422, {"name": "Docs__x"}, "name"),
        (422, {"kind": "opnapi"}, "there are openapi, mcp"),
        (422, {"url": "nonsense"}, "https://"),
        (422, {"options": {"timout": 3}}, "did you mean apis.docs.timeout"),
        (422, {"policy": {"mode": "bold"}}, "policy"),
        (422, {"options": {"headers": {"authorization": "Bearer abc"}}}, "env:NAME or file:PATH"),
        (422, {"options": {"headers": {"x": "secret:../keys/keys.json"}}}, "bare name"),
        (422, {"kind": "openapi", "options": {"auth": {"k": {"key_file": "/etc/shadow"}}}}, "bare name"),
        (422, {"colour": "red"}, "colour"),
        (502, {"url": INSIDE}, ""),  # it does not answer
    ],
)
async def test_what_is_not_taken_is_not_added(tmp_path, status, body, why):
    async with running(Live(HERE if status == 502 else {}, tmp_path)) as client:
        assert why in await client("POST", "adapters", order("https://1.1.1.1/mcp") | body, status=status)
        assert (await client("GET", "adapters"))["adapters"] == []
    assert not (tmp_path / "live" / "adapters.json").exists()


async def test_a_broken_api_is_told_with_its_error_and_the_others_go_on(tmp_path):
    async with running(Live({**HERE, "dying": child("die_at_start"), "shop": SHOP}, tmp_path)) as client:
        found = await client("GET", "tools")
        assert [tool["name"] for tool in found["tools"]] == ["shop__sqrt", "shop__floor"]
        refused = await client("POST", "tools/dying__echo/call", {}, status=404)
        assert "dying is missing: " in refused
        health = {one["name"]: one for one in (await client("GET", "adapters"))["adapters"]}
        assert (health["dying"]["ok"], health["shop"]["ok"]) == (False, True)
        tested = await client("POST", "adapters/dying/test", {}, status=502)
        assert all(
            "cannot open the database" in told for told in (found["missing"]["dying"], health["dying"]["error"], tested)
        )
        assert "comes by config" in await client("DELETE", "adapters/dying", status=409)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"kind": "mpc"}, "apis.shop.kind is 'mpc'; write one of openapi, mcp, callables, installed"),
        ({"kind": "mcp"}, "give one of them"),
        ({"kind": "mcp", "command": ["a"], "url": "https://mcp.example.com/mcp"}, "give one of them"),
        ({"kind": "mcp", "url": "https://me:secret@mcp.example.com/mcp"}, "password"),
        ({"kind": "mcp", "comand": ["x"]}, "did you mean apis.shop.command"),
        ({"kind": "callables", "functions": ["math:nothing"]}, "math:nothing"),
        ({**SHOP, "policy": {"modes": "live"}}, "did you mean apis.shop.policy.mode"),
        ({"kind": "installed"}, "no live adapter 'shop'"),
    ],
)
async def test_a_table_that_cannot_be_used_names_the_setting(tmp_path, table, why):
    with pytest.raises(ConfigError, match="shop") as error:
        Live({**HERE, "shop": table}, tmp_path)
    assert why in str(error.value)


async def test_a_record_that_cannot_be_read_is_not_overwritten(tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "adapters.json").write_text("[{")
    with pytest.raises(StartFailed, match=r"adapters\.json"):
        Live(HERE, tmp_path)
    assert (tmp_path / "live" / "adapters.json").read_text() == "[{"
