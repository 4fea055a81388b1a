"""The doctor knows our own daemon by its answer, also where it is shown no key."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from daemon.api.admin import AdminOnly
from daemon.doctor.base import NotLooked, Scene
from daemon.doctor.learning import LEARNING
from daemon.doctor.network import NETWORK, ForeignServer, NoAnswer, daemon_answers, tap_answers
from daemon.settings.reading import load
from daemon.tap.keys import KeyRing, add_key
from tests.support.served import served

pytestmark = pytest.mark.anyio


def scene(directory: Path, url: str) -> Scene:
    """An installation whose daemon would answer at `url`."""
    return Scene(load(None, [f"state_dir={directory}", f"control.listen={url.removeprefix('http://')}"]))


async def hello(request: Request) -> JSONResponse:
    return JSONResponse({"hello": "world"})


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_daemon_that_wants_a_key_is_ours_and_another_server_is_not(tmp_path: Path, guarded: bool) -> None:
    keys = tmp_path / "keys.json"
    add_key(keys, tenant="ops", scope="admin", now=time.time(), expires=None, note="")
    routes, door = [Route("/api/status", hello)], KeyRing(keys, clock=time.time) if guarded else None
    with served(Starlette(routes=routes, middleware=[Middleware(AdminOnly, keys=door, routes=routes)])) as url:
        if guarded:
            assert await daemon_answers(scene(tmp_path, url))
        else:
            with pytest.raises(ForeignServer):
                await daemon_answers(scene(tmp_path, url))


async def test_a_daemon_that_waits_to_lead_is_ours_and_one_that_does_not_get_on_is_a_fault(tmp_path: Path) -> None:
    told: dict[str, Any] = {"status": "ok"}

    async def waits(request: Request) -> JSONResponse:
        return JSONResponse({"error": {"message": "this daemon waits to lead: b leads"}}, status_code=503)

    async def ready(request: Request) -> JSONResponse:
        return JSONResponse(told, status_code=503)

    (check,) = [one for one in LEARNING if one.name == "progress"]
    with pytest.raises(NotLooked, match="does not answer"):
        await check.look(scene(tmp_path, "http://127.0.0.1:9"))
    with served(Starlette(routes=[Route("/api/status", waits), Route("/readyz", ready)])) as url:
        assert await daemon_answers(scene(tmp_path, url))
        assert await check.look(scene(tmp_path, url)) == []
        told |= {"status": "stuck", "waits_for": ["curator"]}
        (found,) = await check.look(scene(tmp_path, url))
    assert (found.severity, found.what) == ("fault", "curator of the daemon: no progress")


async def test_who_is_slow_is_not_taken_for_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes connections and says nothing: ours under load, as far as anybody can tell."""
    monkeypatch.setattr("daemon.doctor.base.CALL_SECONDS", 0.3)
    monkeypatch.setattr("daemon.doctor.network.CALL_SECONDS", 0.3)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [one.getsockname()[1] for one in silent]
        told = dict(zip(("control.listen", "tap.admin", "tap.listen"), ports, strict=True))
        here = Scene(load(None, [f"state_dir={tmp_path}", *(f"{key}=127.0.0.1:{at}" for key, at in told.items())]))
        for look in (daemon_answers, tap_answers):
            with pytest.raises(NoAnswer):
                await look(here)
        (check,) = [one for one in NETWORK if one.name == "ports"]
        found = await check.look(here)
        assert {one.severity for one in found} == {"warning"}
        assert all("did not answer" in one.what and "Do not end it" in one.remedy for one in found)


async def test_an_agent_whose_calls_cannot_be_trained_on_is_a_warning_with_what_to_change(tmp_path: Path) -> None:
    agents = [
        {"label": "t, desk", "calls_sentence": "all 9", "calls_remedy": ""},
        {"label": "t, bot", "calls_sentence": "35 % of 40; 26 are of runs that ...", "calls_remedy": "change it"},
    ]
    learning: dict[str, Any] = {}

    async def status(request: Request) -> JSONResponse:
        return JSONResponse({"actors": [], "learning": learning})

    (check,) = [one for one in LEARNING if one.name == "agents"]
    with pytest.raises(NotLooked, match="does not answer"):
        await check.look(scene(tmp_path, "http://127.0.0.1:9"))
    with served(Starlette(routes=[Route("/api/status", status)])) as url:
        with pytest.raises(NotLooked, match="still starting"):
            await check.look(scene(tmp_path, url))
        learning["agents"] = agents
        (unfit,) = await check.look(scene(tmp_path, url))
    told = "t, bot: calls that train: 35 % of 40; 26 are of runs that ..."
    assert (unfit.severity, unfit.what, unfit.remedy) == ("warning", told, "change it")


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        pytest.param([], True, id="as it comes"),
        pytest.param(["embeddings.url=http://127.0.0.1:9/v1", "embeddings.model=m"], False, id="a server"),
        pytest.param(["lessons.per_prompt=0"], False, id="no lessons"),
    ],
)
async def test_that_lessons_are_found_by_words_alone_is_a_warning_with_what_to_set(
    settings: list[str], warned: bool
) -> None:
    (check,) = [check for check in LEARNING if check.name == "lessons"]
    found = await check.look(Scene(load(None, settings)))
    assert [one.severity for one in found] == ["warning"] * warned
    assert all("by their words alone" in one.what and "[embeddings]" in one.remedy for one in found)


async def test_that_strict_mode_ends_learning_is_a_warning() -> None:
    (check,) = [check for check in LEARNING if check.name == "strict mode"]
    assert await check.look(Scene(load(None))) == []
    (found,) = await check.look(Scene(load(None, ['redact.kinds=["text"]'])))
    assert "no run of production is trained on" in found.what
    assert "redact.patterns" in found.remedy
