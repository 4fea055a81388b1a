"""Secrets of an OpenAPI document: where they go, how tokens are had, and where they never go."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports.errors import AdapterNotSetUp, LiveApiRefused
from adapters.live.openapi import AuthSettings, OpenApiApi, OpenApiSettings
from tests.support.http_api import Asked, HttpApi, Said
from tests.support.openapi_calls import Opened, operation, query

pytestmark = pytest.mark.anyio
OBJECT = {"R": 100, "G": 200}
LIST = ["a b", "c"]


SCHEMES = {
    "head": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "session"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "password": {"type": "oauth2", "flows": {"password": {"tokenUrl": "/v1/token", "scopes": {}}}},
    "client": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "token", "scopes": {}}}},
    "far": {"type": "oauth2", "flows": {"password": {"tokenUrl": "https://elsewhere.example/token", "scopes": {}}}},
}
SECRET = 's3cret & "sauce"'


def secured(*names: str) -> dict[str, Any]:
    return {
        "document": {"components": {"securitySchemes": SCHEMES}, "security": [{name: [] for name in names}]},
        "auth": {name: AuthSettings(username="ada", key_env="KEY") for name in names},
        "environment": {"KEY": SECRET},
    }


@pytest.mark.parametrize(
    ("name", "place", "wanted"),
    [
        ("head", "x-key", SECRET),
        ("cookie", "cookie", f"session={SECRET}"),
        ("bearer", "authorization", f"Bearer {SECRET}"),
        ("basic", "authorization", "Basic YWRhOnMzY3JldCAmICJzYXVjZSI="),
    ],
)
async def test_a_key_goes_where_the_document_says(tmp_path: Path, name: str, place: str, wanted: str) -> None:
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured(name)) as call:
            await call()
        assert server.asked[0].headers[place] == wanted


async def test_a_key_in_the_query_is_no_argument_of_the_agent(tmp_path: Path) -> None:
    with HttpApi() as server:
        op = operation(parameters=[query("key"), query("a")])
        async with Opened(server, tmp_path, "get", "/q", op, **secured("query")) as call:
            await call(a=1)
            assert list((await call.api.tools())[0].parameters["properties"]) == ["a"]
        assert server.asked[0].pairs == [("a", "1"), ("key", SECRET)]


async def test_an_operation_that_wants_no_key_gets_none(tmp_path: Path) -> None:
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", operation(security=[]), **secured("head")) as call:
            await call()
        assert "x-key" not in server.asked[0].headers


def token_server(tokens: list[dict[str, Any]], valid: set[str]) -> Any:
    def answer(asked: Asked) -> Said:
        if asked.path == "/v1/token":
            return Said(body=tokens.pop(0)) if tokens else Said(status=400, body={"error": "invalid_grant"})
        known = asked.headers.get("authorization", "").removeprefix("Bearer ") in valid
        return Said(body={"ok": True}) if known else Said(status=401, body={"error": "who are you"})

    return answer


async def test_a_password_is_exchanged_for_a_token_once_however_many_ask(tmp_path: Path) -> None:
    with HttpApi(token_server([{"access_token": "T1", "expires_in": 3600}], {"T1"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("password")) as call:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(call)
            assert {"T1", SECRET} <= call.api.secrets()
        asked = [one for one in server.asked if one.path == "/v1/token"]
    assert [one.form for one in asked] == [{"grant_type": "password", "username": "ada", "password": SECRET}]
    assert len(server.asked) == 6


async def test_a_token_that_is_refused_is_renewed_with_its_refresh_token(tmp_path: Path) -> None:
    tokens = [{"access_token": "T1", "refresh_token": "R1"}, {"access_token": "T2"}]
    with HttpApi(token_server(tokens, {"T2"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("password")) as call:
            assert not (await call()).error
        grants = [one.form["grant_type"] for one in server.asked if one.path == "/v1/token"]
    assert grants == ["password", "refresh_token"]


async def test_a_refresh_token_that_ran_out_is_replaced_by_the_password(tmp_path: Path) -> None:
    tokens = [{"access_token": "T1", "refresh_token": "R1"}, {"nothing": 1}, {"access_token": "T2"}]
    with HttpApi(token_server(tokens, {"T2"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("password")) as call:
            assert not (await call()).error
        grants = [one.form["grant_type"] for one in server.asked if one.path == "/v1/token"]
    assert grants == ["password", "refresh_token", "password"]


async def test_a_token_is_renewed_before_it_runs_out(tmp_path: Path) -> None:
    tokens = [{"access_token": "T1", "expires_in": 100}, {"access_token": "T2", "expires_in": 100}]
    now = 0.0
    with HttpApi(token_server(tokens, {"T1", "T2"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("password")) as call:
            call.api._credentials._clock = lambda: now
            await call()
            now = 80.0
            await call()
        assert [one.headers.get("authorization") for one in server.asked if one.path == "/v1/q"] == [
            "Bearer T1",
            "Bearer T2",
        ]


async def test_client_credentials_go_into_the_header(tmp_path: Path) -> None:
    with HttpApi(token_server([{"access_token": "T1"}], {"T1"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("client")) as call:
            assert not (await call()).error
        assert server.asked[0].form == {"grant_type": "client_credentials"}
        assert server.asked[0].headers["authorization"] == "Basic YWRhOnMzY3JldCAmICJzYXVjZSI="


async def test_a_wrong_password_is_told_without_the_password(tmp_path: Path) -> None:
    with HttpApi(token_server([], set())) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("password")) as call:
            with pytest.raises(LiveApiRefused, match=r"auth\.password: no token, status 400") as caught:
                await call()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_document_cannot_send_a_password_to_another_host(tmp_path: Path) -> None:
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), **secured("far")) as call:
            with pytest.raises(AdapterNotSetUp, match=r"auth\.far\.token_url: .* another host"):
                await call()


async def test_a_fetched_document_cannot_send_keys_to_another_host() -> None:
    document = {"openapi": "3.0.0", "paths": {}, "servers": [{"url": "https://elsewhere.example"}]}
    with HttpApi(lambda _: Said(body=document)) as server:
        auth = {"k": AuthSettings(kind="bearer", key_env="KEY")}
        api = OpenApiApi("a", OpenApiSettings(document=server.url, auth=auth), environment={"KEY": SECRET})
        with pytest.raises(AdapterNotSetUp, match=r"server: .* another host"):
            await api.tools()
        await api.aclose()


async def test_a_key_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    auth = {"k": AuthSettings(kind="bearer", key_file=str(tmp_path / "none"))}
    with pytest.raises(AdapterNotSetUp, match=r"auth\.k: key_file = .* cannot be read"):
        OpenApiApi("a", OpenApiSettings(document="d.json", auth=auth))


async def test_a_scheme_that_the_document_does_not_have_wants_a_kind(tmp_path: Path) -> None:
    with HttpApi() as server:
        auth = {"token": AuthSettings(key_env="KEY")}
        async with Opened(server, tmp_path, "get", "/q", operation(), auth=auth, environment={"KEY": SECRET}) as call:
            with pytest.raises(AdapterNotSetUp, match=r"auth\.token: .*kind"):
                await call()
