"""What goes over the wire, and what is told of the answer, against a real HTTP server."""

import gzip
from pathlib import Path
from typing import Any

import anyio
import pytest

from actors.ports.errors import LiveApiMalformed, LiveApiUnavailable
from adapters.live.openapi import AuthSettings, OpenApiApi, OpenApiSettings
from tests.support.http_api import Asked, HttpApi, Said
from tests.support.openapi_calls import Opened, body, operation, query

pytestmark = pytest.mark.anyio
OBJECT = {"R": 100, "G": 200}
LIST = ["a b", "c"]


# The table of OpenAPI 3.1, 4.8.12.6.
@pytest.mark.parametrize(
    ("style", "explode", "value", "wanted"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, LIST, "a%20b,c"),
        ("simple", False, OBJECT, "R,100,G,200"),
        ("simple", True, OBJECT, "R=100,G=200"),
        ("simple", False, "a/b?c#d%", "a%2Fb%3Fc%23d%25"),
        ("simple", False, "ü", "%C3%BC"),
    ],
)
async def test_a_path_parameter_is_written_in_its_style(
    tmp_path: Path, style: str, explode: bool, value: Any, wanted: str
) -> None:
    parameter = {"name": "color", "in": "path", "required": True, "style": style, "explode": explode, "schema": {}}
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/c/{color}/x", operation(parameters=[parameter])) as call:
            assert not (await call(color=value)).error
        assert server.asked[0].path == f"/v1/c/{wanted}/x"


@pytest.mark.parametrize(
    ("more", "value", "wanted"),
    [
        ({}, "blue", "color=blue"),
        ({}, LIST, "color=a%20b&color=c"),
        ({}, OBJECT, "R=100&G=200"),
        ({"explode": False}, LIST, "color=a%20b,c"),
        ({"explode": False}, OBJECT, "color=R,100,G,200"),
        ({"style": "spaceDelimited"}, ["a", "b"], "color=a%20b"),
        ({"style": "pipeDelimited"}, ["a", "b"], "color=a%7Cb"),
        ({"style": "deepObject", "explode": True}, OBJECT, "color%5BR%5D=100&color%5BG%5D=200"),
        ({"style": "deepObject", "explode": True}, {"a": {"b": 1}}, "color%5Ba%5D%5Bb%5D=1"),
        ({}, True, "color=true"),
        ({}, 1.0, "color=1"),
        ({}, "", "color="),
        ({}, "a&b=c", "color=a%26b%3Dc"),
        ({"allowReserved": True}, "a/b:c", "color=a/b:c"),
    ],
)
async def test_a_query_parameter_is_written_in_its_style(
    tmp_path: Path, more: dict[str, Any], value: Any, wanted: str
) -> None:
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", operation(parameters=[query("color", **more)])) as call:
            assert not (await call(color=value)).error
        assert server.asked[0].query == wanted


async def test_a_parameter_with_content_is_json(tmp_path: Path) -> None:
    parameter = {"name": "where", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", operation(parameters=[parameter])) as call:
            await call(where={"a": [1, 2]})
        assert server.asked[0].pairs == [("where", '{"a":[1,2]}')]


async def test_headers_and_cookies_are_sent(tmp_path: Path) -> None:
    parameters = [
        {"name": "X-List", "in": "header", "schema": {}},
        {"name": "X-Map", "in": "header", "explode": True, "schema": {}},
        {"name": "theme", "in": "cookie", "schema": {}},
        {"name": "Authorization", "in": "header", "schema": {}},
    ]
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/h", operation(parameters=parameters)) as call:
            await call(**{"X-List": ["a", "b"], "X-Map": OBJECT, "theme": "dark"})
            refused = await call(Authorization="Bearer of somebody else")
        headers = server.asked[0].headers
    assert (headers["x-list"], headers["x-map"], headers["cookie"]) == ("a,b", "R=100,G=200", "theme=dark")
    assert refused.error
    assert len(server.asked) == 1


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
    tmp_path: Path, schema: Any, kind: str, arguments: dict[str, Any], wanted: str
) -> None:
    with HttpApi() as server:
        async with Opened(server, tmp_path, "post", "/b", operation(requestBody=body(schema, kind))) as call:
            assert not (await call(**arguments)).error
        assert server.asked[0].body.decode().replace("%2C", ",") == wanted
        assert server.asked[0].headers["content-type"] == kind


async def test_a_body_that_is_not_needed_and_not_given_is_not_sent(tmp_path: Path) -> None:
    optional = {**body({"type": "object", "required": ["a"], "properties": {"a": {}}}), "required": False}
    with HttpApi() as server:
        async with Opened(server, tmp_path, "post", "/b", operation(requestBody=optional)) as call:
            assert not (await call()).error
        assert server.asked[0].body == b""
        assert "content-type" not in server.asked[0].headers


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"id": "x"}, "id: 'x' is not of type 'integer'"),
        ({}, "'id' is a required property"),
        ({"id": 1, "limti": 3}, "limti: no such argument; did you mean limit?"),
        ({"id": 1, "limit": 1000}, "limit: 1000 is greater than the maximum of 100"),
        ({"id": 1, "tags": [{"name": 2}]}, "tags.0.name: 2 is not of type 'string'"),
    ],
)
async def test_a_mistake_is_answered_with_its_place_and_never_sent(
    tmp_path: Path, arguments: dict[str, Any], named: str
) -> None:
    tags = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
    op = operation(
        parameters=[
            {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
            query("limit", schema={"type": "integer", "maximum": 100}),
        ],
        requestBody=body({"type": "object", "properties": {"tags": tags}}),
    )
    with HttpApi() as server:
        async with Opened(server, tmp_path, "post", "/{id}", op) as call:
            result = await call(**arguments)
        assert result.error
        assert named in result.text
        assert not server.asked
        assert call.api.counts["mistakes"] == 1


@pytest.mark.parametrize("value", ["..", ".", "../admin", "a/../../admin", "a\\..\\b", "%2e%2e", ""])
async def test_a_path_argument_cannot_lead_to_another_operation(tmp_path: Path, value: str) -> None:
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/items/{id}/view", operation(parameters=[parameter])) as call:
            result = await call(id=value)
        sent = [asked.path for asked in server.asked]
    # A percent sign in the value is only that: it is encoded once more.
    assert sent == (["/v1/items/%252e%252e/view"] if value == "%2e%2e" else [])
    assert result.error is not bool(sent)


@pytest.mark.parametrize(("place", "value"), [("header", "a\r\nX-Evil: 1"), ("cookie", "a; admin=1"), ("header", "ü")])
async def test_a_header_cannot_be_smuggled_in(tmp_path: Path, place: str, value: str) -> None:
    parameter = {"name": "note", "in": place, "schema": {"type": "string"}}
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/h", operation(parameters=[parameter])) as call:
            result = await call(note=value)
        assert result.error
        assert result.text.startswith("Not called: note: ")
        assert not server.asked


async def test_a_null_for_what_may_be_left_out_is_left_out(tmp_path: Path) -> None:
    op = operation(parameters=[query("a", schema={"type": "string"}), query("b", schema={"type": ["string", "null"]})])
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", op) as call:
            assert not (await call(a=None, b=None)).error
        assert server.asked[0].pairs == [("b", "")]


async def test_a_pattern_that_would_hang_is_not_run(tmp_path: Path) -> None:
    op = operation(parameters=[query("a", schema={"type": "string", "pattern": r"^(([a-z])+.)+[A-Z]([a-z])+$\p{L}"})])
    with HttpApi() as server:
        async with Opened(server, tmp_path, "get", "/q", op) as call:
            assert not (await call(a="a" * 60)).error


async def test_the_servers_own_error_is_an_answer(tmp_path: Path) -> None:
    with HttpApi(lambda _: Said(status=404, body={"message": "no such item"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation()) as call:
            result = await call()
    assert (result.error, result.status) == (True, 404)
    assert result.text == 'HTTP 404: {"message": "no such item"}'
    assert result.structured == {"message": "no such item"}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_is_away_says_when_to_ask_again(tmp_path: Path, status: int) -> None:
    with HttpApi(lambda _: Said(status=status, headers={"retry-after": "7"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation()) as call:
            with pytest.raises(LiveApiUnavailable) as caught:
                await call()
    assert caught.value.retry_after == 7.0


async def test_an_answer_that_is_not_as_described_is_given_and_marked(tmp_path: Path) -> None:
    described = {"type": "object", "properties": {"count": {"type": "integer"}}}
    op = operation(responses={"2XX": {"description": "", "content": {"application/json": {"schema": described}}}})
    with HttpApi(lambda _: Said(body={"count": "three"})) as server:
        async with Opened(server, tmp_path, "get", "/q", op) as call:
            result = await call()
            assert call.api.counts["mismatches"] == 1
    assert result.mismatch == "count: 'three' is not of type 'integer'"
    assert (result.error, result.structured) == (False, {"count": "three"})


async def test_a_long_answer_is_cut_and_says_so(tmp_path: Path) -> None:
    with HttpApi(lambda _: Said(body=b"x" * 5_000_000, headers={"content-type": "text/plain"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(), max_text=100) as call:
            result = await call()
    assert result.truncated
    assert len(result.text) < 200


async def test_a_compressed_answer_is_inflated_up_to_its_bound(tmp_path: Path) -> None:
    small, bomb = gzip.compress(b'{"a": 1}'), gzip.compress(b"0" * 50_000_000)
    with HttpApi(lambda a: Said(body=bomb if a.pairs else small, headers={"content-encoding": "gzip"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation(parameters=[query("big")])) as call:
            assert (await call()).structured == {"a": 1}
            assert (await call(big=1)).truncated


async def test_an_encoding_that_nobody_asked_for_is_malformed(tmp_path: Path) -> None:
    with HttpApi(lambda _: Said(body=b"...", headers={"content-encoding": "br"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation()) as call:
            with pytest.raises(LiveApiMalformed, match="encoding 'br'"):
                await call()


async def test_binary_answers_are_named_and_not_shown(tmp_path: Path) -> None:
    with HttpApi(lambda _: Said(body=b"\x89PNG\0\0", headers={"content-type": "image/png"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation()) as call:
            assert (await call()).text == "(image/png, 6 bytes: not shown)"


async def test_a_redirect_is_followed_on_the_same_host_alone(tmp_path: Path) -> None:
    with HttpApi() as elsewhere, HttpApi() as server:

        def answer(asked: Asked) -> Said:
            if asked.path == "/v1/q":
                there = elsewhere.url if asked.pairs else ""
                return Said(status=307, headers={"location": f"{there}/v1/moved"}, body={})
            return Said(body={"moved": asked.method})

        server.answer = answer
        key = {
            "auth": {"k": AuthSettings(kind="header", name="X-Key", key_env="KEY")},
            "environment": {"KEY": "s3cret-key"},
        }
        async with Opened(server, tmp_path, "post", "/q", operation(parameters=[query("far")]), **key) as call:
            assert (await call()).structured == {"moved": "POST"}
            result = await call(far=1)
    assert (result.error, result.status) == (True, 307)
    assert not elsewhere.asked


async def test_redirects_without_an_end_end(tmp_path: Path) -> None:
    with HttpApi(lambda _: Said(status=302, headers={"location": "/v1/q"})) as server:
        async with Opened(server, tmp_path, "get", "/q", operation()) as call:
            with pytest.raises(LiveApiMalformed, match="without an end"):
                await call()
        assert len(server.asked) == 5


async def test_a_call_has_a_deadline(tmp_path: Path) -> None:
    with HttpApi() as server:
        stop = anyio.Event()
        server.answer = lambda _: (stop.is_set() or __import__("time").sleep(0.5), Said())[1]
        async with Opened(server, tmp_path, "get", "/q", operation(), timeout=0.05) as call:
            with pytest.raises(LiveApiUnavailable, match=r"no answer within 0\.05 s"):
                await call()


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with HttpApi() as server:
        pass
    async with Opened(server, tmp_path, "get", "/q", operation()) as call:
        with pytest.raises(LiveApiUnavailable, match="cannot be reached"):
            await call()


async def test_a_document_that_went_away_leaves_the_tools_that_it_had(tmp_path: Path) -> None:
    document = {"openapi": "3.0.0", "paths": {"/q": {"get": operation()}}, "servers": [{"url": "/v2"}]}
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
