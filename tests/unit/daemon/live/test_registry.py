"""Live APIs of a daemon: from configuration and by orders; guarded, written down, and gone again."""

import json
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from actors.store import Store
from actors.system.lifecycle import Lifecycle, Restart, Unit
from daemon.api.live import LiveRoutes
from daemon.api.orders import notice
from daemon.collectors.figures import Figures
from daemon.collectors.live import live_figures
from daemon.errors import ConfigError, OrderRefused, StartFailed
from daemon.live import registry
from daemon.live.orders import AddOrder
from daemon.live.registry import Live
from daemon.live.settings import LiveSettings
from tests.support.http_api import HttpApi, Said

pytestmark = pytest.mark.anyio
SUPPORT = Path(__file__).parents[3] / "support"
HERE = LiveSettings(allow_private=("127.0.0.1",))
SHOP = {"kind": "callables", "functions": ["math:sqrt", "math:floor"], "policy": {"read_only": ["sqrt"]}}


@pytest.fixture(scope="module")
def address():
    process = subprocess.Popen(
        [sys.executable, str(SUPPORT / "mcp_http_server.py"), "json"], stdout=subprocess.PIPE, text=True
    )
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()


@asynccontextmanager
async def running(live: Live) -> AsyncIterator[httpx.AsyncClient]:
    """`live` as the supervisor runs it, and its routes."""
    draining, ready = anyio.Event(), anyio.Event()
    unit = Unit("live", live.run, Restart())
    async with anyio.create_task_group() as group:
        group.start_soon(live.run, Lifecycle(unit, draining, ready.set))
        await ready.wait()
        transport = httpx.ASGITransport(Starlette(routes=LiveRoutes(live).routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://daemon") as client:
            try:
                yield client
            finally:
                draining.set()
                unit.interrupt()


async def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]["message"]


def order(url: str, **more: object) -> dict[str, object]:
    return {"name": "docs", "kind": "mcp", "url": url} | more


async def names(client: httpx.AsyncClient) -> list[str]:
    return [tool["name"] for tool in (await client.get("/api/tools")).json()["tools"]]


async def test_what_the_configuration_names_is_there_and_guarded(tmp_path):
    async with running(Live({"shop": SHOP}, HERE, tmp_path)) as client:
        assert await names(client) == ["shop__sqrt", "shop__floor"]
        read = (await client.post("/api/tools/shop__sqrt/call", json={"arguments": {"x": 9}})).json()
        assert (read["text"], read["source"]) == ("3.0", "live")
        # Not on the operator's list: a shadow run does not execute it.
        written = (await client.post("/api/tools/shop__floor/call", json={"arguments": {"x": 9.5}})).json()
        assert (written["source"], written["error"]) == ("refused", True)
        assert "no tool 'nope'" in await refused(await client.post("/api/tools/nope/call", json={}), 404)


async def test_an_api_is_added_listed_called_tested_and_removed_while_the_daemon_runs(tmp_path, address):
    live = Live({}, HERE, tmp_path)
    async with running(live) as client:
        policy = {"read_only": ["echo"]}
        added = (await client.post("/api/adapters", json=order(address, policy=policy))).json()
        assert "tools" in added, added
        assert [tool["name"] for tool in added["tools"]] == ["echo", "large", "header"]
        assert (added["adapter"]["ok"], added["adapter"]["tools"]) == (True, 3)
        assert await names(client) == ["docs__echo", "docs__large", "docs__header"]
        answer = (await client.post("/api/tools/docs__echo/call", json={"arguments": {"text": "hi"}})).json()
        assert (answer["text"], answer["source"]) == ("hi", "live")
        assert (await client.post("/api/tools/docs__large/call", json={"arguments": {"size": 5}})).json()[
            "source"
        ] != "live"
        assert len((await client.post("/api/adapters/docs/test", json={})).json()["tools"]) == 3
        (line,) = (await client.get("/api/adapters")).json()["adapters"]
        assert (line["name"], line["origin"], line["where"], line["error"]) == ("docs", "control", address, "")
        registry = CollectorRegistry()
        registry.register(Figures(live_figures, live))
        figures = generate_latest(registry).decode()
        assert 'evolved_live_api_up{api="docs",kind="mcp"} 1.0' in figures
        assert 'evolved_live_api_calls_total{api="docs",what="live"} 1.0' in figures
        assert "there is an API 'docs' already" in await refused(
            await client.post("/api/adapters", json=order(address)), 409
        )
        assert (await client.delete("/api/adapters/docs")).json() == {"removed": "docs"}
        assert await names(client) == []
        assert "there are none" in await refused(await client.delete("/api/adapters/docs"), 404)


async def test_who_added_and_removed_an_api_is_in_the_audit_trail_or_nothing_is_done(tmp_path, address):
    store = Store(f"sqlite:///{tmp_path}/s.db", clock=lambda: 1.0)
    await store.open()

    async def note(what: str, details: dict[str, str], by: str) -> None:
        await store.save([notice(what, details, by=by, now=5.0)])

    live = Live({}, HERE, tmp_path, note=note)
    async with running(live):
        await live.add(AddOrder(name="docs", kind="mcp", url=address), "4f9c02d1a7be")
        await live.remove("docs", "0a0b0c0d0e0f")
        told = sorted(await store.directives(), key=lambda one: one.reason)
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
            await live.add(AddOrder(name="docs", kind="mcp", url=address), "4f9c02d1a7be")
        assert live.health() == []


async def test_an_openapi_document_is_added_by_its_address_and_its_server_is_guarded_too(tmp_path):
    with HttpApi() as shop:
        document = {
            "openapi": "3.1.0", "info": {"title": "shop", "version": "1"},
            "paths": {"/things": {"get": {"operationId": "things", "responses": {"200": {"description": "all"}}}}},
        }  # fmt: skip
        for server, answered in ((shop.url, True), ("http://10.255.255.1:9", False)):
            described = document | {"servers": [{"url": server}]}
            shop.answer = lambda asked, described=described: Said(
                body=described if asked.path == "/openapi.json" else {"things": 3}
            )
            async with running(Live({}, HERE, tmp_path / str(answered))) as client:
                order = {"name": "shop", "kind": "openapi", "url": f"{shop.url}/openapi.json"}
                order["options"] = {"server": server}
                added = await client.post("/api/adapters", json=order | {"policy": {"read_only": ["*"]}})
                assert [tool["name"] for tool in added.json()["tools"]] == ["things"]
                answer = await client.post("/api/tools/shop__things/call", json={})
                if answered:
                    assert answer.json()["structured"] == {"things": 3}
                else:
                    assert "not public" in await refused(answer, 403)


@pytest.mark.promise
async def test_what_was_added_is_there_after_a_restart_and_its_file_holds_no_secret(tmp_path, address):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "docs-token").write_text("s3cret-of-docs")
    options = {"headers": {"x-token": "secret:docs-token"}}
    policy = {"read_only": ["*"]}
    async with running(Live({}, HERE, tmp_path)) as client:
        await client.post("/api/adapters", json=order(address, options=options, policy=policy))
    kept = tmp_path / "live" / "adapters.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "s3cret-of-docs" not in kept.read_text()
    async with running(Live({}, HERE, tmp_path)) as client:
        body = {"arguments": {"name": "x-token"}}
        answer = (await client.post("/api/tools/docs__header/call", json=body)).json()
        # The server got it and gave it back; nobody here is shown it.
        assert "s3cret-of-docs" not in json.dumps(answer)
        assert "REDACTED" in answer["text"]
        await client.delete("/api/adapters/docs")
    async with running(Live({}, HERE, tmp_path)) as client:
        assert (await client.get("/api/adapters")).json()["adapters"] == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"kind": "mcp", "options": {"command": ["sh", "-c", "id"]}}, "runs code on this machine"),
        ({"kind": "stdio"}, "runs code on this machine"),
        ({"kind": "callables", "options": {"functions": ["os:system"]}}, "runs code on this machine"),
        ({"kind": "mcp", "url": "http://127.0.0.1:9/mcp"}, "not public"),
        ({"kind": "openapi", "url": "http://169.254.169.254/latest/openapi.json"}, "not public"),
        ({"kind": "mcp", "url": "https://[::ffff:10.0.0.1]/mcp"}, "not public"),
        ({"kind": "mcp", "url": "http://1.1.1.1/mcp"}, r"live.allow_http"),
        ({"options": {"headers": {"x": "file:/etc/passwd"}}}, "is not taken here"),
        ({"options": {"headers": {"x": "env:HOME"}}}, "is not taken here"),
        ({"kind": "openapi", "options": {"auth": {"k": {"key_env": "HOME"}}}}, "is not taken here"),
    ],
)
async def test_nothing_that_runs_here_or_reaches_inside_is_taken_over_the_network(tmp_path, body, why):
    async with running(Live({}, LiveSettings(), tmp_path)) as client:
        said = await refused(await client.post("/api/adapters", json=order("https://1.1.1.1/mcp") | body), 403)
        assert why in said
        assert (await client.get("/api/adapters")).json()["adapters"] == []
    assert not (tmp_path / "live" / "adapters.json").exists()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"name": "Docs__x"}, "name"),
        ({"kind": "opnapi"}, "there are openapi, mcp"),
        ({"url": "nonsense"}, "https://"),
        ({"options": {"timout": 3}}, "did you mean timeout"),
        ({"policy": {"mode": "bold"}}, "policy"),
        ({"options": {"headers": {"authorization": "Bearer abc"}}}, "env:NAME or file:PATH"),
        ({"options": {"headers": {"x": "secret:../keys/keys.json"}}}, "bare name"),
        ({"kind": "openapi", "options": {"auth": {"k": {"key_file": "/etc/shadow"}}}}, "bare name"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_an_order_that_is_not_right_says_what_is_wrong(tmp_path, body, why):
    async with running(Live({}, HERE, tmp_path)) as client:
        given = order("http://127.0.0.1:9/mcp") | body
        assert why in await refused(await client.post("/api/adapters", json=given), 422)


async def test_what_does_not_answer_is_not_added(tmp_path):
    async with running(Live({}, HERE, tmp_path)) as client:
        await refused(await client.post("/api/adapters", json=order("http://127.0.0.1:9/mcp")), 502)
        assert (await client.get("/api/adapters")).json()["adapters"] == []


async def test_a_broken_api_is_told_with_its_error_and_the_others_go_on(tmp_path):
    dying = {"kind": "mcp", "command": [sys.executable, str(SUPPORT / "bad_mcp_server.py"), "die_at_start"]}
    async with running(Live({"dying": dying, "shop": SHOP}, HERE, tmp_path)) as client:
        found = (await client.get("/api/tools")).json()
        assert [tool["name"] for tool in found["tools"]] == ["shop__sqrt", "shop__floor"]
        assert "cannot open the database" in found["missing"]["dying"]
        health = {one["name"]: one for one in (await client.get("/api/adapters")).json()["adapters"]}
        assert (health["dying"]["ok"], health["shop"]["ok"]) == (False, True)
        assert "cannot open the database" in health["dying"]["error"]
        assert "comes by config" in await refused(await client.delete("/api/adapters/dying"), 409)
        assert "cannot open the database" in await refused(await client.post("/api/adapters/dying/test", json={}), 502)


async def test_a_task_that_is_started_again_has_its_apis_again(tmp_path):
    here = {"kind": "mcp", "command": [sys.executable, str(SUPPORT / "bad_mcp_server.py"), "good"]}
    live = Live({"here": here | {"policy": {"read_only": ["echo"]}}, "shop": SHOP}, HERE, tmp_path)
    for _ in range(2):
        async with running(live) as client:
            body = {"arguments": {"size": 1}}
            assert (await client.post("/api/tools/here__echo/call", json=body)).json()["text"] == '{"size": 1}'
            assert (await client.post("/api/tools/shop__sqrt/call", json={"arguments": {"x": 4}})).json()[
                "text"
            ] == "2.0"


async def test_only_so_many_are_added(tmp_path, address, monkeypatch):
    monkeypatch.setattr(registry, "MOST", 1)
    settings = LiveSettings(allow_private=("127.0.0.1",))
    async with running(Live({}, settings, tmp_path)) as client:
        assert (await client.post("/api/adapters", json=order(address))).status_code == 200
        assert "1 were added already" in await refused(
            await client.post("/api/adapters", json=order(address, name="two")), 409
        )


async def test_what_is_installed_is_listed_of_every_kind(tmp_path):
    async with running(Live({}, HERE, tmp_path)) as client:
        installed = (await client.get("/api/adapters")).json()["installed"]
    assert {"kind": "environment", "name": "travel", "at": "adapters.environments.travel:TravelDesk"} in installed
    assert {"judge", "embedder"} <= {one["kind"] for one in installed}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"kind": "mpc"}, "adapters.shop.kind is 'mpc'; write one of openapi, mcp, callables, installed"),
        ({"kind": "mcp"}, "give one of them"),
        ({"kind": "mcp", "comand": ["x"]}, "did you mean command"),
        ({"kind": "callables", "functions": ["math:nothing"]}, "math:nothing"),
        ({**SHOP, "policy": {"modes": "live"}}, "did you mean mode"),
        ({"kind": "installed"}, "no live adapter 'shop'"),
    ],
)
async def test_a_table_that_cannot_be_used_names_the_setting(tmp_path, table, why):
    with pytest.raises(ConfigError, match="shop") as error:
        Live({"shop": table}, HERE, tmp_path)
    assert why in str(error.value)


async def test_a_record_that_cannot_be_read_is_not_overwritten(tmp_path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "adapters.json").write_text("[{")
    with pytest.raises(StartFailed, match=r"adapters\.json"):
        Live({}, HERE, tmp_path)
    assert (tmp_path / "live" / "adapters.json").read_text() == "[{"
