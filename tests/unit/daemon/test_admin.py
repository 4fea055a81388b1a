"""The control API with keys: open on this machine while there is none, shut to all but admins afterwards."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from daemon.admin import AdminOnly, admin_keys, key_headers
from daemon.errors import ConfigError
from daemon.tap.keys import Scope, add_key, revoke_key

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
    guarded = AdminOnly(app, keys=admin_keys(path, "127.0.0.1"))
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


def test_it_listens_to_others_only_with_an_admin_key(path: Path) -> None:
    key(path, "agent")
    for keys in (None, path):
        assert (admin_keys(keys, "127.0.0.1") is None) == (keys is None)
        with pytest.raises(ConfigError, match=r"control\.host '0\.0\.0\.0'.*evolved keys add --scope admin"):
            admin_keys(keys, "0.0.0.0")
    key(path)
    assert admin_keys(path, "0.0.0.0") is not None
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
