"""What a probe is told: without a key, whatever Host it calls, whether the daemon lives and has started."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware

from actors.system.bus import Depth
from actors.system.lifecycle import ActorState, Status
from daemon.api.health import HEAD_SECONDS, STUCK_SECONDS, Heads, Health

pytestmark = pytest.mark.anyio


def client(status: Status, unready: float = 0.0, *, critical: bool = True) -> httpx.AsyncClient:
    state = ActorState(
        name="curator", status=status, restarts=0, last_error="", beat_age=0.0, note="", critical=critical,
        unready_seconds=unready,
    )  # fmt: skip
    app = Health(TrustedHostMiddleware(Starlette(), allowed_hosts=["localhost"]), actors=lambda: [state])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://10.1.2.3:8090")


@pytest.mark.parametrize(
    ("status", "unready", "critical", "told"),
    [
        ("starting", 0.0, True, "starting"), ("waiting", 0.0, True, "ok"), ("waiting", STUCK_SECONDS + 1, False, "ok"),
        *((status, STUCK_SECONDS + 1, True, "stuck") for status in ("waiting", "restarting", "starting")),
    ],
)  # fmt: skip
async def test_it_is_ready_once_its_actors_have_started_and_while_those_that_are_needed_get_on(
    status: Status, unready: float, critical: bool, told: str
) -> None:
    async with client(status, unready, critical=critical) as one:
        assert (await one.get("/healthz")).status_code == 200
        answer = await one.get("/readyz")
    waits = {} if told == "ok" else {"waits_for": ["curator"]}
    assert (answer.status_code, answer.json()) == (503 if waits else 200, {"status": told, **waits})


async def test_a_queue_whose_head_stands_still_is_not_ready_though_its_actor_says_so() -> None:
    heads, now = Heads(), 0.0
    for second, waiting, acked in ((0, 5, 1), (1000, 9, 1), (1500, 9, 2), (1500 + HEAD_SECONDS, 40, 2)):
        heads.look({"curator": Depth(waiting=waiting, in_flight=0, acked=acked)}, second)
        heads.look({"idle": Depth(waiting=0, in_flight=0, acked=7)}, second)
        assert heads.still(second) == set()
        now = second + 1.0
    app = Health(Starlette(), actors=list, still=lambda: heads.still(now))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://10.1.2.3:8090") as one:
        answer = await one.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "stuck", "waits_for": ["curator"]})
    heads.look({"curator": Depth(waiting=40, in_flight=0, acked=3)}, now)
    assert heads.still(now) == set()


async def test_everything_else_keeps_its_door() -> None:
    async with client("ready") as one:
        assert (await one.get("/api/status")).status_code == 400
        assert (await one.post("/healthz")).status_code == 400
