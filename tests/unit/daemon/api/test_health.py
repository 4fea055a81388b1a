"""What a probe is told: without a key, whatever Host it calls, whether the daemon lives and has started."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from actors.system.lifecycle import ActorState, Status
from daemon.api.health import STUCK_SECONDS, Health

pytestmark = pytest.mark.anyio


def client(status: Status, unready: float = 0.0, *, critical: bool = True) -> httpx.AsyncClient:
    state = ActorState(
        name="curator", status=status, restarts=0, last_error="", beat_age=0.0, note="", critical=critical,
        unready_seconds=unready,
    )  # fmt: skip
    app = Starlette(
        middleware=[
            Middleware(Health, actors=lambda: [state]),
            Middleware(TrustedHostMiddleware, allowed_hosts=["localhost"]),
        ]
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://10.1.2.3:8090")


async def test_it_is_ready_once_its_actors_have_started() -> None:
    async with client("starting") as one:
        assert (await one.get("/healthz")).status_code == 200
        answer = await one.get("/readyz")
        assert (answer.status_code, answer.json()["waits_for"]) == (503, ["curator"])
    async with client("waiting") as one:
        assert (await one.get("/readyz")).status_code == 200


@pytest.mark.parametrize("status", ["waiting", "backoff", "starting", "stalled"])
async def test_what_is_needed_and_does_not_get_on_is_not_ready(status: Status) -> None:
    async with client(status, STUCK_SECONDS + 1) as one:
        answer = await one.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "stuck", "waits_for": ["curator"]})
        assert (await one.get("/healthz")).status_code == 200
    async with client("waiting", STUCK_SECONDS + 1, critical=False) as one:
        assert (await one.get("/readyz")).status_code == 200


async def test_everything_else_keeps_its_door() -> None:
    async with client("ready") as one:
        assert (await one.get("/api/status")).status_code == 400
        assert (await one.post("/healthz")).status_code == 400
