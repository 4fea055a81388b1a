"""The doctor knows our own daemon by its answer, also where it is shown no key."""

import time
from pathlib import Path

import anyio
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from daemon.api.admin import AdminOnly
from daemon.api.control import ControlSettings
from daemon.doctor.base import NotLooked, Scene
from daemon.doctor.learning import LEARNING
from daemon.doctor.network import ForeignServer, daemon_answers, listens
from daemon.processes.asgi import serve
from daemon.settings.config import Config
from daemon.tap.keys import KeyRing, add_key
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio


async def hello(request: Request) -> JSONResponse:
    return JSONResponse({"hello": "world"})


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_daemon_that_wants_a_key_is_ours_and_another_server_is_not(tmp_path: Path, guarded: bool) -> None:
    keys = tmp_path / "keys.json"
    add_key(keys, tenant="ops", scope="admin", now=time.time(), expires=None, note="")
    routes, door = [Route("/api/status", hello)], KeyRing(keys, clock=time.time) if guarded else None
    app = Starlette(routes=routes, middleware=[Middleware(AdminOnly, keys=door, routes=routes)])
    settings, stop = ControlSettings(port=free_port()), anyio.Event()
    scene = Scene(Config(state_dir=str(tmp_path), control=settings))
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: serve(app, settings, stop=stop))
        with anyio.fail_after(30):
            while not await listens(settings.host, settings.port):  # noqa: ASYNC110 - another server has no event
                await anyio.sleep(0.02)
        if guarded:
            assert await daemon_answers(scene)
        else:
            with pytest.raises(ForeignServer):
                await daemon_answers(scene)
        stop.set()


@pytest.mark.parametrize("state", ["stuck", "waiting", ""])
async def test_learning_that_is_stuck_is_a_fault_with_what_it_waits_for_and_what_to_change(
    tmp_path: Path, state: str
) -> None:
    learning = {"state": state, "sentence": "No outcome was ever reported.", "remedy": "report how runs went"}

    async def status(request: Request) -> JSONResponse:
        return JSONResponse({"actors": [], "learning": learning if state else {}})

    settings, stop = ControlSettings(port=free_port()), anyio.Event()
    scene = Scene(Config(state_dir=str(tmp_path), control=settings))
    (check,) = [one for one in LEARNING if one.name == "progress"]
    with pytest.raises(NotLooked, match="does not answer"):
        await check.look(scene)
    async with anyio.create_task_group() as group:
        app = Starlette(routes=[Route("/api/status", status)])
        group.start_soon(lambda: serve(app, settings, stop=stop))
        with anyio.fail_after(30):
            while not await listens(settings.host, settings.port):  # noqa: ASYNC110 - another server has no event
                await anyio.sleep(0.02)
        if not state:
            with pytest.raises(NotLooked, match="does not lead"):
                await check.look(scene)
        else:
            told = [(one.severity, one.what, one.remedy) for one in await check.look(scene)]
            stuck = ("fault", "learning is stuck: No outcome was ever reported.", "report how runs went")
            assert told == ([stuck] if state == "stuck" else [])
        stop.set()
