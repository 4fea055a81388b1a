"""The control API with keys: open on this machine while there is none, shut to all but admins afterwards."""

import base64
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.api.admin import AdminOnly, RefusalCollector, admin_keys
from daemon.api.auth_throttle import AuthThrottle
from daemon.cli.control_client import key_headers
from daemon.errors import ConfigError
from daemon.tap.keys import KeyRing, Scope, add_key, revoke_key

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def key(path: Path, scope: Scope = "admin") -> str:
    return add_key(path, tenant="ops", scope=scope, now=0.0)[0]


async def page(request: Request) -> Response:
    return PlainTextResponse("here")


@pytest.fixture
async def http(path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an API whose key file has one agent's key at first."""
    key(path, "agent")
    app = Starlette(routes=[Route("/", page, methods=["GET", "POST"])])
    guarded = AdminOnly(app, keys=admin_keys(path, "127.0.0.1"), routes=app.routes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(guarded), base_url="http://here:8090") as client:
        yield client


async def test_without_an_admin_key_it_is_open(http: httpx.AsyncClient) -> None:
    assert (await http.get("/")).text == "here"


async def test_an_admin_key_opens_it_in_every_place_where_it_may_stand(http: httpx.AsyncClient, path: Path) -> None:
    text = key(path)
    assert (await http.get("/")).status_code == 401
    login = base64.b64encode(f"anyone:{text}".encode()).decode()
    for shown in ({"x-evolved-key": text}, {"authorization": f"Bearer {text}"}, {"authorization": f"Basic {login}"}):
        assert (await http.get("/", headers=shown)).text == "here"


async def test_a_browser_is_asked_to_log_in(http: httpx.AsyncClient, path: Path) -> None:
    key(path)
    assert (await http.get("/")).headers["www-authenticate"].startswith("Basic ")


async def test_an_agents_key_or_a_revoked_one_does_not_open_it(http: httpx.AsyncClient, path: Path) -> None:
    agent, admin = key(path, "agent"), key(path)
    revoke_key(path, admin[4:16], now=1.0)
    shown = (agent.encode(), admin.encode(), b"evk_", b"\xff")
    answers = [await http.get("/", headers={b"x-evolved-key": one}) for one in shown]
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}
    assert admin not in answers[1].text


async def test_a_page_of_another_site_gives_no_orders(http: httpx.AsyncClient, path: Path) -> None:
    text = key(path)
    for origin, status in (("http://evil", 403), ("null", 403), ("http://here:8090", 200)):
        assert (await http.post("/", headers={"x-evolved-key": text, "origin": origin})).status_code == status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_wrong_keys_from_an_address_are_put_off_counted_and_never_shut_out_the_right_one(path: Path) -> None:
    text, clock, refused = key(path), Clock(), Counter[str]()
    app = Starlette(routes=[Route("/", page)])
    tries = AuthThrottle(most=3, seconds=60.0, clock=clock)
    guarded = AdminOnly(app, keys=KeyRing(path, clock=clock), routes=app.routes, tries=tries, refused=refused)

    async def ask(shown: str, address: str = "10.0.0.1") -> httpx.Response:
        transport = httpx.ASGITransport(guarded, client=(address, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
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
    registry.register(RefusalCollector(refused))
    shown = generate_latest(registry).decode()
    assert 'evolved_control_refused_total{reason="too_many_tries"} 2.0' in shown
    assert 'evolved_control_refused_total{reason="scope"} 0.0' in shown


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
        with pytest.raises(ConfigError, match=r"control\.host '0\.0\.0\.0'.*evolved keys add --scope admin"):
            admin_keys(keys, "0.0.0.0")
    key(path)
    assert admin_keys(path, "0.0.0.0") is not None
    with pytest.raises(ConfigError, match=r"control\.host '0\.0\.0\.0'.*control\.tls_cert.*behind_tls_proxy"):
        admin_keys(path, "0.0.0.0", protected=False)
    with pytest.raises(ConfigError, match=r"tap\.door\.keys_file.*evolved keys add"):
        admin_keys(path.with_name("none"), "127.0.0.1")


def test_the_command_line_shows_the_key_in_a_file(path: Path) -> None:
    text = key(path)
    file = path.with_name("admin.key")
    file.write_text(text + "\n")
    assert key_headers(str(file)) == {"x-evolved-key": text}
    assert key_headers("") == {}
    for wrong in ("sk-1", "", f"{text} {text}"):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match="admin_key_file"):
            key_headers(str(file))
