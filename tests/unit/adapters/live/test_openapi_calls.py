"""What goes over the wire, with which key, and what is told of the answer, against a real HTTP server."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports.errors import AdapterNotSetUp, LiveApiError, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable
from adapters.live import CallResult
from adapters.live.openapi import AuthSettings, OpenApiApi, OpenApiSettings
from tests.support.http_api import Asked, HttpApi, Said

pytestmark = pytest.mark.anyio
OBJECT = {"R": 100, "G": 200}
LIST = ["a b", "c"]
PLAIN = {"headers": {"content-type": "text/plain"}}


def parameter(place: str, name: str = "color", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {}, **more}


def body(schema: Any, kind: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}, **more}}


class Shop:
    """An API of one operation, and its server."""

    def __init__(self, server: HttpApi, api: OpenApiApi) -> None:
        self.server, self.api = server, api

    async def __call__(self, **arguments: Any) -> CallResult:
        return await self.api.call("op", arguments)

    @property
    def asked(self) -> Asked:
        """The last request."""
        return self.server.asked[-1]


Opened = Callable[..., Shop]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Opened]:
    """Makes shops: `op` is the operation's description, `answer` what the server says, the rest are settings."""
    where = tmp_path / "document.json"

    def opened(
        op: Any = None,
        answer: Any = None,
        *,
        method: str = "get",
        path: str = "/q",
        document: Any = None,
        environment: Any = None,
        **settings: Any,
    ) -> Shop:
        server = stack.enter_context(HttpApi(answer if callable(answer) or not answer else lambda _: answer))
        described = {"openapi": "3.1.0", "info": {}, "paths": {path: {method: {"operationId": "op", **(op or {})}}}}
        where.write_text(json.dumps(described | (document or {})))
        chosen = OpenApiSettings(document=str(where), **{"server": f"{server.url}/v1", **settings})
        return Shop(server, OpenApiApi("shop", chosen, environment=environment or {}))

    with ExitStack() as stack:
        yield opened


# The table of OpenAPI 3.1, 4.8.12.6.
@pytest.mark.parametrize(
    ("place", "more", "value", "wanted"),
    [
        ("path", {}, "blue", "blue"),
        ("path", {}, LIST, "a%20b,c"),
        ("path", {}, OBJECT, "R,100,G,200"),
        ("path", {"explode": True}, OBJECT, "R=100,G=200"),
        ("path", {}, "a/b?c#d%", "a%2Fb%3Fc%23d%25"),
        ("path", {}, "ü", "%C3%BC"),
        ("path", {}, "%2e%2e", "%252e%252e"),
        ("query", {}, "blue", "color=blue"),
        ("query", {}, LIST, "color=a%20b&color=c"),
        ("query", {}, OBJECT, "R=100&G=200"),
        ("query", {"explode": False}, LIST, "color=a%20b,c"),
        ("query", {"explode": False}, OBJECT, "color=R,100,G,200"),
        ("query", {"style": "spaceDelimited"}, ["a", "b"], "color=a%20b"),
        ("query", {"style": "pipeDelimited"}, ["a", "b"], "color=a%7Cb"),
        ("query", {"style": "deepObject", "explode": True}, OBJECT, "color%5BR%5D=100&color%5BG%5D=200"),
        ("query", {"style": "deepObject", "explode": True}, {"a": {"b": 1}}, "color%5Ba%5D%5Bb%5D=1"),
        ("query", {"content": {"application/json": {"schema": {}}}}, {"a": 1}, "color=%7B%22a%22%3A1%7D"),
        ("query", {}, True, "color=true"),
        ("query", {}, 1.0, "color=1"),
        ("query", {}, "", "color="),
        ("query", {}, "a&b=c", "color=a%26b%3Dc"),
        ("query", {"allowReserved": True}, "a/b:c", "color=a/b:c"),
        ("query", {"schema": {"type": "string"}}, None, ""),
        ("query", {"schema": {"type": ["string", "null"]}}, None, "color="),
        # A pattern that would hang is not run.
        (
            "query",
            {"schema": {"type": "string", "pattern": r"^(([a-z])+.)+[A-Z]$\p{L}"}},
            "a" * 60,
            f"color={'a' * 60}",
        ),
        ("header", {}, ["a", "b"], "a,b"),
        ("header", {"explode": True}, OBJECT, "R=100,G=200"),
        ("cookie", {}, "dark", "color=dark"),
    ],
)
async def test_a_parameter_is_written_in_its_style(
    shop: Opened, place: str, more: dict[str, Any], value: Any, wanted: str
) -> None:
    call = shop({"parameters": [parameter(place, **more)]}, path="/c/{color}/x" if place == "path" else "/q")
    assert not (await call(color=value)).error
    headers = call.asked.headers
    sent = {"query": call.asked.query, "header": headers.get("color"), "cookie": headers.get("cookie")}
    assert call.asked.path == (f"/v1/c/{wanted}/x" if place == "path" else "/v1/q")
    assert sent.get(place, wanted) == wanted


@pytest.mark.parametrize(
    ("schema", "kind", "arguments", "wanted"),
    [
        ({"type": "object", "properties": {"a": {}}}, "application/json", {"a": [1, None]}, '{"a":[1,null]}'),
        ({"type": "object", "properties": {"a": {}}}, "application/merge-patch+json", {"a": 1}, '{"a":1}'),
        ({"type": "array", "items": {"type": "integer"}}, "application/json", {"body": [1, 2]}, "[1,2]"),
        ({"type": "object"}, "application/json", {"body": {"any": 1}}, '{"any":1}'),
        (
            {"allOf": [{"type": "object", "properties": {"a": {}}}, {"properties": {"b": {}}}]},
            "application/json",
            {"a": 1, "b": 2},
            '{"a":1,"b":2}',
        ),
        (
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}},
            "application/x-www-form-urlencoded",
            {"a": "x y", "b": [1, 2], "c": {"d": 1}},
            "a=x%20y&b=1&b=2&c=%7B%22d%22%3A1%7D",
        ),
        ({"type": "string"}, "text/plain", {"body": "plain words"}, "plain words"),
    ],
)  # fmt: skip
async def test_a_body_is_written_in_its_media_type(
    shop: Opened, schema: Any, kind: str, arguments: dict[str, Any], wanted: str
) -> None:
    call = shop(body(schema, kind), method="post")
    assert not (await call(**arguments)).error
    assert call.asked.body.decode().replace("%2C", ",") == wanted
    assert call.asked.headers["content-type"] == kind


async def test_a_body_that_is_not_needed_and_not_given_is_not_sent(shop: Opened) -> None:
    optional = body({"type": "object", "required": ["a"], "properties": {"a": {}}}, required=False)
    call = shop(optional, method="post")
    assert not (await call()).error
    assert (call.asked.body, "content-type" in call.asked.headers) == (b"", False)


TAGS = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
CHECKED = {
    "parameters": [
        parameter("path", "id", schema={"type": "integer"}),
        parameter("query", "limit", schema={"type": "integer", "maximum": 100}),
    ],
    **body({"type": "object", "properties": {"tags": TAGS}}),
}


@pytest.mark.parametrize(
    ("op", "arguments", "named"),
    [
        (CHECKED, {"id": "x"}, "id: 'x' is not of type 'integer'"),
        (CHECKED, {}, "'id' is a required property"),
        (CHECKED, {"id": 1, "limti": 3}, "limti: no such argument; did you mean limit?"),
        (CHECKED, {"id": 1, "limit": 1000}, "limit: 1000 is greater than the maximum of 100"),
        (CHECKED, {"id": 1, "tags": [{"name": 2}]}, "tags.0.name: 2 is not of type 'string'"),
        # A path argument cannot lead to another operation, and a header cannot be smuggled in.
        *(
            ({"parameters": [parameter("path", "id")]}, {"id": value}, "id: ")
            for value in ("..", ".", "../admin", "a/../../admin", "a\\..\\b", "")
        ),
        ({"parameters": [parameter("header", "note")]}, {"note": "a\r\nX-Evil: 1"}, "Not called: note: "),
        ({"parameters": [parameter("header", "note")]}, {"note": "ü"}, "Not called: note: "),
        ({"parameters": [parameter("cookie", "note")]}, {"note": "a; admin=1"}, "Not called: note: "),
        ({"parameters": [parameter("header", "Authorization")]}, {"Authorization": "Bearer x"}, "no such argument"),
    ],
)
async def test_a_mistake_is_answered_with_its_place_and_never_sent(
    shop: Opened, op: Any, arguments: dict[str, Any], named: str
) -> None:
    call = shop(op, method="post", path="/items/{id}/view" if "id" in str(op) else "/q")
    result = await call(**arguments)
    assert result.error
    assert named in result.text
    assert not call.server.asked
    assert call.api.counts["mistakes"] == 1


COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}}
DESCRIBED = {"responses": {"2XX": {"description": "", "content": {"application/json": {"schema": COUNT}}}}}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(
            Said(status=404, body={"message": "no such item"}),
            {"error": True, "status": 404, "text": 'HTTP 404: {"message": "no such item"}',
             "structured": {"message": "no such item"}},
            id="an error is an answer",
        ),
        pytest.param(
            Said(body={"count": "three"}),
            {"mismatch": "count: 'three' is not of type 'integer'", "error": False, "structured": {"count": "three"}},
            id="not as described",
        ),
        pytest.param(Said(body=b"x" * 5_000_000, **PLAIN), {"truncated": True}, id="long"),
        pytest.param(
            Said(body=gzip.compress(b'{"a": 1}'), headers={"content-encoding": "gzip"}),
            {"structured": {"a": 1}, "truncated": False}, id="compressed",
        ),
        pytest.param(
            Said(body=gzip.compress(b"0" * 50_000_000), headers={"content-encoding": "gzip"}),
            {"truncated": True}, id="a bomb",
        ),
        pytest.param(
            Said(body=b"\x89PNG\0\0", headers={"content-type": "image/png"}),
            {"text": "(image/png, 6 bytes: not shown)"}, id="binary",
        ),
    ],
)  # fmt: skip
async def test_what_is_told_of_an_answer(shop: Opened, answer: Said, told: dict[str, Any]) -> None:
    call = shop(DESCRIBED, answer)
    result = await call()
    assert {name: getattr(result, name) for name in told} == told
    assert call.api.counts["mismatches"] == bool(result.mismatch)


def late(asked: Asked) -> Said:
    time.sleep(0.5)
    return Said()


AWAY = "retry-after"


@pytest.mark.parametrize(
    ("answer", "error", "match", "requests"),
    [
        *((Said(status=status, headers={AWAY: "7"}), LiveApiUnavailable, None, 1) for status in (429, 502, 503, 504)),
        (Said(body=b"...", headers={"content-encoding": "br"}), LiveApiMalformed, "encoding 'br'", 1),
        (Said(status=302, headers={"location": "/v1/q"}), LiveApiMalformed, "without an end", 5),
        (late, LiveApiUnavailable, r"no answer within 0\.2 s", 1),
    ],
)
async def test_an_answer_that_is_none_is_an_error(
    shop: Opened, answer: Any, error: type[LiveApiError], match: str | None, requests: int
) -> None:
    call = shop(None, answer, timeout=0.2 if answer is late else 30.0)
    with pytest.raises(error, match=match) as caught:
        await call()
    assert len(call.server.asked) == requests
    assert match or getattr(caught.value, "retry_after", 0) == 7.0


async def test_a_server_that_is_not_there_is_unavailable(shop: Opened) -> None:
    call = shop(server="http://127.0.0.1:9")
    with pytest.raises(LiveApiUnavailable, match="cannot be reached"):
        await call()


async def test_a_document_that_went_away_leaves_the_tools_that_it_had() -> None:
    document = {"openapi": "3.0.0", "paths": {"/q": {"get": {}}}, "servers": [{"url": "/v2"}]}
    now = 0.0
    with HttpApi(lambda _: Said(body=document)) as server:
        api = OpenApiApi("shop", OpenApiSettings(document=f"{server.url}/d.json", refresh=10), clock=lambda: now)
        assert len(await api.tools()) == 1
        server.answer = lambda _: Said(status=500)
        now = 11.0
        assert len(await api.tools()) == 1
        assert api.counts["reload_failed"] == 1
        now = 22.0
        document["paths"]["/r"] = {"get": {"operationId": "other"}}
        server.answer = lambda _: Said(body=document)
        assert len(await api.tools()) == 2
        await api.call("other", {})
        assert server.asked[-1].path == "/v2/r"
        await api.aclose()


# Secrets: where they go, how tokens are had, and where they never go.

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
BASIC = "Basic YWRhOnMzY3JldCAmICJzYXVjZSI="


def secured(name: str) -> dict[str, Any]:
    return {
        "document": {"components": {"securitySchemes": SCHEMES}, "security": [{name: []}]},
        "auth": {name: AuthSettings(username="ada", key_env="KEY")},
        "environment": {"KEY": SECRET},
    }


@pytest.mark.parametrize(
    ("name", "place", "wanted"),
    [
        ("head", "x-key", SECRET),
        ("cookie", "cookie", f"session={SECRET}"),
        ("bearer", "authorization", f"Bearer {SECRET}"),
        ("basic", "authorization", BASIC),
    ],
)
async def test_a_key_goes_where_the_document_says(shop: Opened, name: str, place: str, wanted: str) -> None:
    call = shop(**secured(name))
    await call()
    assert call.asked.headers[place] == wanted
    unsecured = shop({"security": []}, **secured(name))
    await unsecured()
    assert place not in unsecured.asked.headers


async def test_a_key_in_the_query_is_no_argument_of_the_agent(shop: Opened) -> None:
    call = shop({"parameters": [parameter("query", "key"), parameter("query", "a")]}, **secured("query"))
    await call(a=1)
    assert list((await call.api.tools())[0].parameters["properties"]) == ["a"]
    assert call.asked.pairs == [("a", "1"), ("key", SECRET)]


@pytest.mark.promise
async def test_a_redirect_is_followed_on_the_same_host_alone(shop: Opened) -> None:
    with HttpApi() as elsewhere:

        def answer(asked: Asked) -> Said:
            if asked.path == "/v1/q":
                there = elsewhere.url if asked.pairs else ""
                return Said(status=307, headers={"location": f"{there}/v1/moved"}, body={})
            return Said(body={"moved": asked.method})

        call = shop({"parameters": [parameter("query", "far")]}, answer, method="post", **secured("head"))
        assert (await call()).structured == {"moved": "POST"}
        result = await call(far=1)
    assert (result.error, result.status) == (True, 307)
    assert not elsewhere.asked


def token_server(valid: str, *tokens: dict[str, Any]) -> Any:
    left = list(tokens)

    def answer(asked: Asked) -> Said:
        if asked.path == "/v1/token":
            return Said(body=left.pop(0)) if left else Said(status=400, body={"error": "invalid_grant"})
        known = asked.headers.get("authorization", "").removeprefix("Bearer ") in valid.split()
        return Said(body={"ok": True}) if known else Said(status=401, body={"error": "who are you"})

    return answer


def forms(call: Shop) -> list[dict[str, str]]:
    return [one.form for one in call.server.asked if one.path == "/v1/token"]


async def test_a_password_is_exchanged_for_a_token_once_however_many_ask(shop: Opened) -> None:
    call = shop(None, token_server("T1", {"access_token": "T1", "expires_in": 3600}), **secured("password"))
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)
    assert {"T1", SECRET} <= call.api.secrets()
    assert forms(call) == [{"grant_type": "password", "username": "ada", "password": SECRET}]
    assert len(call.server.asked) == 6


@pytest.mark.parametrize(
    ("tokens", "grants"),
    [
        ([], ["password", "refresh_token"]),
        ([{"nothing": 1}], ["password", "refresh_token", "password"]),  # the refresh token ran out
    ],
)
async def test_a_token_that_is_refused_is_renewed(
    shop: Opened, tokens: list[dict[str, Any]], grants: list[str]
) -> None:
    first = {"access_token": "T1", "refresh_token": "R1"}
    call = shop(None, token_server("T2", first, *tokens, {"access_token": "T2"}), **secured("password"))
    assert not (await call()).error
    assert [form["grant_type"] for form in forms(call)] == grants


async def test_a_token_is_renewed_before_it_runs_out(shop: Opened) -> None:
    tokens = [{"access_token": name, "expires_in": 100} for name in ("T1", "T2")]
    call = shop(None, token_server("T1 T2", *tokens), **secured("password"))
    for now, token in ((0.0, "T1"), (80.0, "T2")):
        call.api._credentials._clock = lambda now=now: now
        await call()
        assert call.asked.headers["authorization"] == f"Bearer {token}"


async def test_client_credentials_go_into_the_header(shop: Opened) -> None:
    call = shop(None, token_server("T1", {"access_token": "T1"}), **secured("client"))
    assert not (await call()).error
    assert call.server.asked[0].form == {"grant_type": "client_credentials"}
    assert call.server.asked[0].headers["authorization"] == BASIC


@pytest.mark.promise
async def test_a_wrong_password_is_told_without_the_password(shop: Opened) -> None:
    call = shop(None, token_server(""), **secured("password"))
    with pytest.raises(LiveApiRefused, match=r"auth\.password: no token, status 400") as caught:
        await call()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.promise
async def test_a_document_cannot_send_keys_to_another_host(shop: Opened) -> None:
    with pytest.raises(AdapterNotSetUp, match=r"auth\.far\.token_url: .* another host"):
        await shop(**secured("far"))()
    document = {"openapi": "3.0.0", "paths": {}, "servers": [{"url": "https://elsewhere.example"}]}
    with HttpApi(lambda _: Said(body=document)) as server:
        auth = {"k": AuthSettings(kind="bearer", key_env="KEY")}
        api = OpenApiApi("a", OpenApiSettings(document=server.url, auth=auth), environment={"KEY": SECRET})
        with pytest.raises(AdapterNotSetUp, match=r"server: .* another host"):
            await api.tools()
        await api.aclose()


async def test_a_key_that_is_not_there_or_a_scheme_that_nobody_describes_is_named(shop: Opened) -> None:
    with pytest.raises(AdapterNotSetUp, match=r"auth\.k: key_file = .* cannot be read"):
        shop(auth={"k": AuthSettings(kind="bearer", key_file="/nowhere")})
    call = shop(auth={"token": AuthSettings(key_env="KEY")}, environment={"KEY": SECRET})
    with pytest.raises(AdapterNotSetUp, match=r"auth\.token: .*kind"):
        await call()
