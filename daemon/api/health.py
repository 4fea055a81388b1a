"""Whether the daemon lives and is ready: for probes of load balancers, which have no key and call the
process by its address.

GET /healthz   200 while it answers
GET /readyz    200 once every actor has started, and while all that are needed get on; 503 with the names of the others
"""

from collections.abc import Callable, Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from actors.system.lifecycle import ActorState

NOT_READY = frozenset({"new", "starting"})
STUCK_SECONDS = 120.0
"""What is needed and does not get on for so long is not ready: an engine that restarts, or a broker, is back before."""


class Health:
    """ASGI middleware before the door: answers the two, and tells nothing else."""

    def __init__(self, app: ASGIApp, *, actors: Callable[[], Sequence[ActorState]]) -> None:
        self._app, self._actors = app, actors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in ("/healthz", "/readyz") or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        actors = self._actors() if path == "/readyz" else ()
        starting = sorted(one.name for one in actors if one.status in NOT_READY)
        stuck = sorted(one.name for one in actors if one.critical and one.unready_seconds > STUCK_SECONDS)
        told: dict[str, object] = {"status": "ok"}
        if stuck:
            told = {"status": "stuck", "waits_for": stuck}
        elif starting:
            told = {"status": "starting", "waits_for": starting}
        await JSONResponse(told, status_code=503 if stuck or starting else 200)(scope, receive, send)
