"""Environments over HTTP: AgentEvolver's routes and shapes, locks, caps, reaping, errors; and the client of it.

That an environment behind it keeps its promises is in tests/contract.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.messages import ToolCall
from actors.ports.errors import AdapterNotSetUp, EnvironmentFailed
from adapters.environments.http.client import HttpEnvironment
from adapters.environments.http.service import EnvironmentService
from adapters.environments.travel import TravelDesk
from tests.support.patience import until
from tests.support.served import served
from tests.support.troublesome import Troublesome

pytestmark = pytest.mark.anyio


class Caller:
    """Posts as AgentEvolver's client does (env_client.py: `_make_request`)."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def post(self, route: str, expected: int = 200, /, **fields: Any) -> Any:
        body = {"env_type": "travel", "task_id": None, "instance_id": None, "messages": {}, "params": {}} | fields
        response = await self.http.post(f"/{route}", json=body)
        assert response.status_code == expected, response.text
        return response.json()

    async def begun(self, number: int = 0, environment: str = "troublesome") -> str:
        """The key of a new instance."""
        made = await self.post("create", env_type=environment, task_id=f"train:{number}")
        return made["data"]["info"]["instance_id"]

    async def count(self, key: str) -> str:
        return (await self.post("step", instance_id=key, messages=call("count")))["data"]["info"]["text"]


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[Caller, EnvironmentService]]:
    service = EnvironmentService({"travel": TravelDesk(), "troublesome": Troublesome()}, **options)
    app = service.app()
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        yield Caller(http), service


def call(name: str, /, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


async def test_an_episode_goes_as_agentevolver_plays_it():
    async with serving() as (caller, _):
        assert (await caller.http.get("/healthz")).text == "OK"
        ids = (await caller.post("get_env_profile", params={"split": "train"}))["data"]
        assert ids[:2] == ["train:0", "train:1"]
        opened = (await caller.post("create", task_id=ids[0]))["data"]
        assert [message["role"] for message in opened["state"]] == ["user"]
        task = TravelDesk().sample(0, "train", None)
        assert (opened["reward"], opened["is_terminated"], opened["info"]["task_id"]) == (0, False, task.id)
        key = opened["info"]["instance_id"]
        # Its client names no environment in the calls of an instance.
        seen = await caller.post("step", env_type="default", instance_id=key, messages=call("find_person", name="X"))
        assert seen["data"]["state"] == [{"role": "tool", "content": '{"error": "no person"}', "tool_call_id": "c1"}]
        assert (await caller.post("evaluate", instance_id=key, params={"sparse": True}))["data"] == 0.0
        tools = (await caller.post("get_info", instance_id=key))["data"]["tools"]
        assert "find_person" in [tool["function"]["name"] for tool in tools]
        over = (await caller.post("step", instance_id=key, messages=call("finish", answer="x")))["data"]
        assert (over["is_terminated"], over["reward"]) == (True, 0.0)
        assert await caller.post("release", instance_id=key) == {"success": True, "data": None}
        assert await caller.post("release", instance_id=key) == {"success": False, "data": None}


@pytest.mark.parametrize(
    ("route", "fields", "status", "kind"),
    [
        ("create", {"env_type": "nothing", "task_id": "train:0"}, 404, "unknown_environment"),
        ("create", {"task_id": "seventeen"}, 422, "refused"),
        ("create", {"task_id": "train:0:Q"}, 422, "refused"),
        ("create", {"params": {"task": {"goal": 3}}}, 422, "refused"),
        ("create", {"task_id": 3}, 400, "malformed"),
        ("step", {"instance_id": "nobody"}, 404, "unknown_instance"),
        ("sample", {"params": {"seed": -1}}, 422, "refused"),
        ("sample", {"params": {"seed": 0, "split": "secret"}}, 422, "refused"),
        ("get_env_profile", {"params": {"n": 10**9}}, 422, "refused"),
        ("sample", {"params": {"seed": 0, "x": "y" * 3000}}, 413, "too_large"),
    ],
)
async def test_what_is_wrong_with_a_request_is_said_in_json(route: str, fields: Any, status: int, kind: str):
    async with serving(max_body=3000) as (caller, _):
        answer = await caller.post(route, status, **fields)
        assert (answer["success"], answer["error"]["kind"]) == (False, kind)
        for content, header, wrong in ((b"{}", "text/plain", 415), (b"{", "application/json", 400)):
            sent = await caller.http.post("/sample", content=content, headers={"content-type": header})
            assert sent.status_code == wrong


@pytest.mark.parametrize(
    ("trouble", "status", "kind", "after"), [("raise", 500, "internal", 200), ("sleep", 504, "timeout", 404)]
)
async def test_a_bug_is_no_traceback_and_a_call_that_hangs_costs_its_instance(trouble, status, kind, after):
    async with serving(call_seconds=3.0) as (caller, service):
        bad, other = await caller.begun(), await caller.begun()
        answer = await caller.post("step", status, instance_id=bad, messages=call(trouble))
        assert answer["error"]["kind"] == kind
        assert not [word for word in ("Traceback", "a bug") if word in str(answer)]
        await caller.post("step", after, instance_id=bad, messages=call("count"))
        await caller.count(other)
        lost = trouble == "sleep"
        assert (service.timeouts, service.instances) == (lost, 2 - lost)


async def test_calls_of_one_instance_come_one_after_the_other():
    async with serving() as (caller, _):
        key = await caller.begun()
        seen = list[int]()

        async def step() -> None:
            seen.append(int(await caller.count(key)))

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(step)
        assert sorted(seen) == list(range(1, 21))


async def test_there_are_no_more_instances_than_the_cap_and_those_that_nobody_uses_are_closed():
    async with serving(max_instances=2) as (caller, service):
        first, _ = await caller.begun(0, "travel"), await caller.begun(1, "travel")
        assert "max_instances" in (await caller.post("create", 503, task_id="train:2"))["error"]["message"]
        await caller.post("release", instance_id=first)
        await caller.begun(2, "travel")
        assert service.capped == 1
    async with serving(idle_seconds=0.2) as (caller, service):
        key = await caller.begun(0, "travel")
        await until(lambda: not service.instances, "it is closed")
        assert service.reaped == 1
        await caller.post("step", 404, instance_id=key, messages=call("finish"))


async def test_who_lost_the_answer_to_create_gets_the_same_instance_again():
    async with serving() as (caller, service):
        create = partial(caller.post, "create", task_id="train:0", instance_id="mine")
        assert await create() == await create()
        assert (service.created, service.instances) == (1, 1)
        await caller.post("create", 409, task_id="train:1", instance_id="mine")
        await caller.post("step", instance_id="mine", messages=call("weather"))
        await caller.post("create", 409, task_id="train:0", instance_id="mine")


def posted(answer: Any) -> Any:
    """A service that gives each POST to `answer`."""
    return served(Starlette(routes=[Route("/{any}", answer, methods=["POST"])]))


@pytest.mark.promise
async def test_a_step_is_never_taken_twice_and_a_create_as_often_as_allowed():
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        # Whoever answers before he has read a request ends its connection.
        await request.body()
        asked.append(request.url.path)
        if asked.count("/create") == 3 and asked[-1] == "/create":
            return JSONResponse({"success": True, "data": {"state": [{"role": "user", "content": "go"}]}})
        return JSONResponse({"success": False, "error": {"kind": "full", "message": "later"}}, 503)

    with posted(answer) as url:
        environment = HttpEnvironment(url, "travel", attempts=3)
        episode = await environment.reset(TravelDesk().sample(0, "train", None))
        with pytest.raises(EnvironmentFailed, match="later"):
            await episode.step([ToolCall("finish", "{}")], "")
        with pytest.raises(EnvironmentFailed, match="later"):
            await episode.evaluate()
        await episode.aclose()
        await environment.aclose()
    times = {route: asked.count(route) for route in ("/create", "/step", "/evaluate", "/release")}
    assert times == {"/create": 3, "/step": 1, "/evaluate": 3, "/release": 1}


async def test_a_service_of_agentevolver_is_played_as_far_as_it_goes():
    """Its shapes as read in env_service.py and environments/bfcl/bfcl_env.py: no tools, user messages."""
    told: dict[str, dict[str, Any]] = {}

    async def answer(request: Request) -> Response:
        body = told[request.url.path] = await request.json()
        data: Any = {
            "/get_env_profile": ["multi_turn_base_1", "multi_turn_base_2"],
            "/create": {
                "state": [{"role": "system", "content": "# Tools"}, {"role": "user", "content": "Post a ticket."}],
                "info": {"instance_id": body["instance_id"], "task_id": body["task_id"], "tools_count": 17},
            },
            "/step": {
                "state": [{"role": "user", "content": "Done?"}], "reward": 1.0, "is_terminated": True, "info": {},
            },
            "/evaluate": 1.0,
            "/release": None,
        }[request.url.path]  # fmt: skip
        return JSONResponse({"success": True, "data": data})

    with posted(answer) as url:
        environment = HttpEnvironment(url, "bfcl", contract="agentevolver")
        assert environment.sample(3, "train", None).spec == {"task_id": "multi_turn_base_2"}
        with pytest.raises(ValueError, match="families"):
            environment.sample(0, "train", "A")
        episode = await environment.reset(environment.sample(0, "heldout", None))
        assert [message["role"] for message in episode.messages] == ["system", "user"]
        assert await episode.evaluate() == 0.0
        seen = await episode.step([ToolCall("post_ticket", '{"title": "x"}', "c1")], "")
        assert (seen.text, seen.done, await episode.evaluate()) == ("Done?", True, 1.0)
        await episode.aclose()
        await environment.aclose()
    assert told["/get_env_profile"]["params"] == {"split": "dev"}
    assert told["/create"]["task_id"] == "multi_turn_base_1"
    assert "<tool_call>" in told["/step"]["messages"]["content"]
    assert told["/step"]["messages"]["tool_calls"][0]["function"]["name"] == "post_ticket"


@pytest.mark.parametrize(
    "status_and_body",
    [(200, b"<html>"), (200, b'{"data": {"state": 3}}'), (200, b'{"data": ' + b"[" * 100_000), (200, b" " * 5_000_000),
     (302, b""), (401, b"{}"), (500, b"\xff")],
    ids=["html", "shape", "nested", "long", "redirect", "key", "bytes"],
)  # fmt: skip
async def test_answers_that_make_no_sense_are_environment_failed(status_and_body: tuple[int, bytes]):
    async def answer(request: Request) -> Response:
        return Response(status_and_body[1], status_and_body[0], headers={"location": "http://127.0.0.1:9/"})

    with posted(answer) as url:
        environment = HttpEnvironment(url, "travel")
        with pytest.raises(EnvironmentFailed):
            await environment.reset(TravelDesk().sample(0, "train", None))
        with pytest.raises(EnvironmentFailed):
            environment.tools()
        await environment.aclose()


async def test_a_service_that_is_away_is_named_and_the_key_is_not(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("evk_secret\n")
    environment = HttpEnvironment("http://127.0.0.1:9", "travel", key_file=str(file), attempts=1)
    with pytest.raises(EnvironmentFailed, match=r"127\.0\.0\.1:9") as failed:
        await environment.reset(TravelDesk().sample(0, "train", None))
    assert "secret" not in str(failed.value)
    await environment.aclose()
    for options in ({"url": "ftp://x"}, {"timeout": 0}, {"attempts": 99}, {"key_file": "/nowhere"}, {"contract": "x"}):
        with pytest.raises(AdapterNotSetUp):
            HttpEnvironment(**{"url": "http://x", "environment": "travel", **options})  # type: ignore[arg-type]
