"""What becomes of a document: tools, names, schemas, and what is skipped. And what goes over the wire to a real HTTP
server, with which key, and what is told of the answer."""

import gzip
import json
import re
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable
from adapters.live import CallResult, Operation
from adapters.live.openapi import AuthSettings, OpenApiApi, OpenApiSettings
from adapters.live.openapi import auth as credentials
from tests.support.http_api import Asked, HttpApi, Said

pytestmark = pytest.mark.anyio
OBJECT = {"R": 100, "G": 200}
LIST = ["a b", "c"]
SERVER = "http://127.0.0.1:1"
ENDLESS = r"^(([a-z])+.)+[A-Z]$\p{L}"


def parameter(place: str, name: str = "color", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {}, **more}


def body(schema: Any, kind: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}, **more}}


def posting(schema: Any, kind: str = "application/json", **more: Any) -> dict[str, Any]:
    return {"post": {**more, **body(schema, kind)}}


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
Read = Callable[..., Awaitable[tuple[OpenApiApi, dict[str, Operation]]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a document: its text, or its paths and what else it has."""

    async def reading(
        paths: str | dict[str, Any], *, version: str = "3.1.0", components: Any = None, **settings: Any
    ) -> tuple[OpenApiApi, dict[str, Operation]]:
        info = {"title": "t", "version": "1"}
        document = {"openapi": version, "info": info, "paths": paths, "components": components or {}}
        where = tmp_path / "openapi.json"
        where.write_text(paths if isinstance(paths, str) else json.dumps(document))
        api = OpenApiApi("shop", OpenApiSettings(document=str(where), **{"server": SERVER, **settings}))
        return api, {tool.name: tool for tool in await api.tools()}

    return reading


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Opened]:
    """Makes shops: `op` is the operation's description, `answer` what the server says, the rest are settings."""
    where = tmp_path / "document.json"

    def opened(
        op: Any = None, answer: Any = None, at: str = "get /q", document: Any = None, keys: Any = None, **settings: Any
    ) -> Shop:
        method, path = at.split()
        server = stack.enter_context(HttpApi(answer if callable(answer) or not answer else lambda _: answer))
        described = {"openapi": "3.1.0", "info": {}, "paths": {path: {method: {"operationId": "op", **(op or {})}}}}
        where.write_text(json.dumps(described | (document or {})))
        chosen = OpenApiSettings(document=str(where), **{"server": f"{server.url}/v1", **settings})
        return Shop(server, OpenApiApi("shop", chosen, environment=keys or {}))

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
        ("query", {"schema": {"type": "string", "pattern": ENDLESS}}, "a" * 60, f"color={'a' * 60}"),
        ("header", {}, ["a", "b"], "a,b"),
        ("header", {"explode": True}, OBJECT, "R=100,G=200"),
        ("cookie", {}, "dark", "color=dark"),
    ],
)
async def test_a_parameter_is_written_in_its_style(shop: Opened, place, more, value, wanted) -> None:
    call = shop({"parameters": [parameter(place, **more)]}, at="get /c/{color}/x" if place == "path" else "get /q")
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
        ({"allOf": [{"type": "object", "properties": {"a": {}}}, {"properties": {"b": {}}}]},
         "application/json", {"a": 1, "b": 2}, '{"a":1,"b":2}'),
        ({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}}, "application/x-www-form-urlencoded",
         {"a": "x y", "b": [1, 2], "c": {"d": 1}}, "a=x%20y&b=1&b=2&c=%7B%22d%22%3A1%7D"),
        ({"type": "string"}, "text/plain", {"body": "plain words"}, "plain words"),
    ],
)  # fmt: skip
async def test_a_body_is_written_in_its_media_type(shop: Opened, schema, kind, arguments, wanted) -> None:
    call = shop(body(schema, kind), at="post /q")
    assert not (await call(**arguments)).error
    assert call.asked.body.decode().replace("%2C", ",") == wanted
    assert call.asked.headers["content-type"] == kind


async def test_a_body_that_is_not_needed_and_not_given_is_not_sent(shop: Opened) -> None:
    optional = body({"type": "object", "required": ["a"], "properties": {"a": {}}}, required=False)
    call = shop(optional, at="post /q")
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
async def test_a_mistake_is_answered_with_its_place_and_never_sent(shop: Opened, op, arguments, named) -> None:
    call = shop(op, at="post /items/{id}/view" if "id" in str(op) else "post /q")
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
        # An error is an answer.
        (Said(status=404, body={"message": "no such item"}),
         {"error": True, "status": 404, "text": 'HTTP 404: {"message": "no such item"}',
          "structured": {"message": "no such item"}}),
        # Not as described.
        (Said(body={"count": "three"}),
         {"mismatch": "count: 'three' is not of type 'integer'", "error": False, "structured": {"count": "three"}}),
        (Said(body=b"x" * 5_000_000, headers={"content-type": "text/plain"}), {"truncated": True}),
        (Said(body=gzip.compress(b'{"a": 1}'), headers={"content-encoding": "gzip"}),
         {"structured": {"a": 1}, "truncated": False}),
        # A bomb.
        (Said(body=gzip.compress(b"0" * 50_000_000), headers={"content-encoding": "gzip"}), {"truncated": True}),
        (Said(body=b"\x89PNG\0\0", headers={"content-type": "image/png"}),
         {"text": "(image/png, 6 bytes: not shown)"}),
    ],
    ids=["error", "mismatch", "long", "compressed", "bomb", "binary"],
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
async def test_an_answer_that_is_none_is_an_error(shop: Opened, answer, error, match, requests) -> None:
    call = shop(None, answer, timeout=0.2 if answer is late else 30.0)
    with pytest.raises(error, match=match) as caught:
        await call()
    assert len(call.server.asked) == requests
    assert match or getattr(caught.value, "retry_after", 0) == 7.0


async def test_a_server_or_a_document_that_is_not_there_is_named(shop: Opened) -> None:
    call = shop(server="http://127.0.0.1:9")
    with pytest.raises(LiveApiUnavailable, match="cannot be reached"):
        await call()
    with pytest.raises(AdapterNotSetUp, match=r"document = '/nowhere\.json' cannot be read"):
        await OpenApiApi("shop", OpenApiSettings(document="/nowhere.json", server=SERVER)).tools()


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
        "keys": {"KEY": SECRET},
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

        call = shop({"parameters": [parameter("query", "far")]}, answer, at="post /q", **secured("head"))
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
async def test_a_token_that_is_refused_is_renewed(shop: Opened, tokens, grants) -> None:
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
    call = shop(auth={"token": AuthSettings(key_env="KEY")}, keys={"KEY": SECRET})
    with pytest.raises(AdapterNotSetUp, match=r"auth\.token: .*kind"):
        await call()


# Documents: what is made of them, and what of those that are none.


async def test_an_operation_becomes_a_tool_whose_arguments_are_one_object(read: Read) -> None:
    string = {"type": "string"}
    (put,) = posting({"$ref": "#/components/schemas/I"}).values()
    put |= {
        "operationId": "put_item",
        "summary": "Change an item",
        "tags": ["items"],
        "parameters": [
            parameter("path", "id", schema={"type": "integer"}),
            parameter("query", "dry", schema={"type": "boolean"}),
            parameter("header", "X-Trace", schema=string),
            parameter("cookie", "theme", schema=string),
        ],
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object"}}}}},
    }
    schemas = {"I": {"type": "object", "required": ["name"], "properties": {"name": string}}}
    api, tools = await read({"/items/{id}": {"put": put}}, components={"schemas": schemas})
    tool = tools["put_item"]
    assert list(tool.parameters["properties"]) == ["id", "dry", "X-Trace", "theme", "name"]
    assert tool.parameters["required"] == ["id", "name"]
    assert tool.parameters["additionalProperties"] is False
    assert "$ref" not in json.dumps(tool.parameters)
    assert (tool.description, tool.tags, tool.returns) == ("Change an item", ("items",), {"type": "object"})
    assert not tool.claims_read_only
    assert not api.read_only("put_item")


async def test_yaml_is_read_as_json_has_it(read: Read) -> None:
    _, tools = await read(
        """
openapi: 3.0.3
info: {title: t, version: "1"}
paths:
  /on:
    get:
      operationId: on
      parameters:
        - {name: answer, in: query, schema: {type: string, enum: [yes, no, 2020-01-01], nullable: true}}
      responses:
        200: {description: fine, content: {application/json: {schema: {type: array, items: {type: integer}}}}}
"""
    )
    answer = tools["on"].parameters["properties"]["answer"]
    assert answer == {"type": ["string", "null"], "enum": ["yes", "no", "2020-01-01", None]}
    assert tools["on"].returns == {"type": "array", "items": {"type": "integer"}}
    assert tools["on"].claims_read_only


async def test_a_page_of_yaml_cannot_become_a_gigabyte(read: Read) -> None:
    lines = ["openapi: 3.1.0", "x0: &x0 {type: object, properties: {a: {type: string}}}"]
    for number in range(1, 12):
        inner = ", ".join(f"p{n}: *x{number - 1}" for n in range(10))
        lines.append(f"x{number}: &x{number} {{type: object, properties: {{{inner}}}}}")
    lines.append("paths: {/a: {post: {operationId: a, requestBody: {content: {application/json: {schema: *x11}}}}}}")
    tracemalloc.start()
    api, tools = await read("\n".join(lines))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(tools) + len(api.skipped) == 1
    assert peak < 50_000_000


async def test_a_schema_that_holds_itself_is_cut_and_says_so(read: Read) -> None:
    reference = {"$ref": "#/components/schemas/Node"}
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": reference}}
    api, tools = await read({"/n": posting(reference, operationId="n")}, components={"schemas": {"Node": node}})
    inner = tools["n"].parameters["properties"]["next"]
    assert inner["type"] == "object"
    assert "properties" not in inner
    assert "Node" in tools["n"].description
    assert not api.skipped


async def test_what_cannot_be_offered_is_skipped_with_its_reason_and_the_rest_goes_on(read: Read) -> None:
    elsewhere = "https://elsewhere.example"
    wanted: dict[str, tuple[dict[str, Any], str]] = {
        "POST /remote": (posting({"$ref": f"{elsewhere}/schema.json"}), "remote_reference"),
        "POST /file": (posting({"$ref": "other.yaml#/A"}), "remote_reference"),
        "POST /nothing": (posting({"$ref": "#/components/schemas/Nothing"}), "dangling_reference"),
        "POST /upload": (posting({"type": "object"}, "multipart/form-data"), "media_type"),
        "POST /bad": (posting({"type": "object", "properties": {"a": {"type": "no such type"}}}), "bad_schema"),
        "GET /place": ({"get": {"parameters": [parameter("moon")]}}, "bad_parameter"),
        "GET /style": ({"get": {"parameters": [parameter("query", style="baroque")]}}, "bad_parameter"),
        "GET /other": ({"get": {"servers": [{"url": elsewhere}]}}, "other_server"),
        "GET /list": ({"get": {"parameters": "none"}}, "dangling_reference"),
        "GET /loop": ({"get": {"parameters": [{"$ref": "#/components/parameters/A"}]}}, "dangling_reference"),
        "* no-slash": ({"get": {}}, "malformed"),
        "* /item": ({"$ref": f"{elsewhere}/item.json"}, "remote_reference"),
    }
    paths = {where.split()[1]: item for where, (item, _) in wanted.items()}
    loop = {"A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"}}
    api, tools = await read(paths | {"/fine": {"get": {"operationId": "fine"}}}, components={"parameters": loop})
    assert list(tools) == ["fine"]
    assert {one.where: one.reason for one in api.skipped} == {where: reason for where, (_, reason) in wanted.items()}
    assert api.counts["skipped_remote_reference"] == 3
    with pytest.raises(LiveApiRefused, match="no operation 'nothing'"):
        await api.call("nothing", {})


async def test_names_are_unique_legal_and_the_same_in_any_order(read: Read) -> None:
    long = "a-very-long-collection-of-things-that-somebody-gave-a-very-long-name"
    paths: dict[str, Any] = {f"/{long}/{number}/{{id}}": {"get": {}, "delete": {}} for number in range(250)}
    paths |= {"/a": {"get": {"operationId": "list items"}}, "/b": {"get": {"operationId": "list.items"}}}
    api, tools = await read(paths)
    assert len(tools) == 502
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in tools)
    assert tools[next(iter(tools))].title == f"GET /{long}/0/{{id}}"
    assert not api.skipped
    _, again = await read(dict(reversed(paths.items())))
    assert {one.title: one.name for one in again.values()} == {one.title: one.name for one in tools.values()}


async def test_operations_are_left_out_by_name_and_beyond_the_limit(read: Read) -> None:
    paths = {f"/{name}": {"get": {"operationId": name}} for name in ("user_list", "user_drop", "log_list")}
    assert list((await read(paths, include=("user_*",), exclude=("*_drop",)))[1]) == ["user_list"]
    api, tools = await read(paths, max_operations=2)
    assert (len(tools), api.counts["skipped_too_many"]) == (2, 1)


async def test_arguments_of_one_name_are_told_apart(read: Read) -> None:
    item = posting({"type": "object", "properties": {"id": {"type": "boolean"}}}, operationId="p")
    item["post"]["parameters"] = [parameter("path", "id"), parameter("query", "id"), parameter("query", "filter[name]")]
    _, tools = await read({"/{id}": item})
    assert list(tools["p"].parameters["properties"]) == ["id", "query_id", "filter_name", "body_id"]


async def test_what_openapi_3_0_writes_in_its_own_way_is_translated(read: Read) -> None:
    schema = {
        "type": "object",
        "required": ["a", "id"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "a": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True, "example": 3},
            "b": {"$ref": "#/components/schemas/B", "description": "ignored beside a reference in 3.0"},
        },
    }
    schemas = {"B": {"nullable": True, "allOf": [{"type": "string"}]}}
    _, tools = await read({"/": posting(schema, operationId="p")}, version="3.0.3", components={"schemas": schemas})
    assert tools["p"].parameters["properties"] == {
        "a": {"type": ["number", "null"], "exclusiveMinimum": 0, "examples": [3]},
        "b": {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
    }
    assert tools["p"].parameters["required"] == ["a"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "neither JSON nor YAML"),
        ("[1]", "no object"),
        ('{"swagger": "2.0", "paths": {}}', "3.0 and 3.1"),
        ('{"openapi": "4.0.0"}', "3.0 and 3.1"),
        ('{"openapi": "3.1.0", "paths": []}', "paths"),
        ('{"openapi": "3.1.0", "paths": {}}', "name one in `server`"),
        ("[" * 5000, "neither JSON nor YAML|nested too deep"),
        *(("a: \n " + opening * 100_000, "neither JSON nor YAML") for opening in ("[", "a: [", "{a: ", "- ")),
        ("a: !!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
    ],
)
async def test_a_document_that_is_none_is_told(read: Read, text: str, told: str) -> None:
    with pytest.raises(LiveApiMalformed, match=told):
        await read(text, server="")


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, "cookie"),
        ({"type": "http", "scheme": "Basic"}, "basic"),
        ({"type": "oauth2", "flows": {"password": {"tokenUrl": "token"}}}, "password"),
        ({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "token"}}}, "client_credentials"),
        ({"type": "openIdConnect"}, "bearer"),
    ],
)
def test_a_scheme_is_what_the_document_says(described: dict[str, Any], kind: str) -> None:
    assert scheme(described).kind == kind
    assert scheme(described).token_url == ("https://shop.example/v1/token" if "flows" in described else "")


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"type": "http", "scheme": "digest"}, "name its kind"),
        ({"type": "apiKey", "in": "header", "name": "na\u00efve"}, "which header the key goes into"),
        ({"type": "oauth2", "flows": {"password": {}}}, "say where tokens come from"),
    ],
)
def test_what_a_document_lacks_of_a_scheme_is_named(described: dict[str, Any], said: str) -> None:
    with pytest.raises(AdapterNotSetUp, match=said):
        scheme(described)


def scheme(described: dict[str, Any]) -> Any:
    said = AuthSettings(kind="document", username="me")
    return credentials._scheme("shop", said, described, "key", "https://shop.example/v1", ())


@pytest.mark.parametrize(
    ("answer", "life"),
    [
        ({"access_token": "a", "expires_in": 100}, 70.0),
        ({"access_token": "a"}, None),
        ({"access_token": "a", "expires_in": -1}, None),
        ({"access_token": "a\n"}, 0.0),
        ({"token": "a"}, 0.0),
        (["a"], 0.0),
    ],
)
def test_a_token_without_a_lifetime_is_kept_and_one_that_is_none_is_not(answer: Any, life: float | None) -> None:
    token = credentials._read_token(json.dumps(answer).encode(), 0.0)
    assert (token is None) == (life == 0.0)
    if token is not None:
        assert token.until == (life if life else pytest.approx(credentials._LONGEST_LIFE, rel=0.01))
