"""Whether the daemon lives and is ready: for probes of Kubernetes and load balancers, which have no key and call the
process by its address.

GET /healthz   200 while it answers
GET /readyz    200 once every actor has started; 503 with the names of those that have not
"""

from collections.abc import Callable, Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from actors.system.lifecycle import ActorState

NOT_READY = frozenset({"new", "starting"})


class Health:
    """ASGI middleware before the door: answers the two, and tells nothing else."""

    def __init__(self, app: ASGIApp, *, actors: Callable[[], Sequence[ActorState]]) -> None:
        self._app, self._actors = app, actors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in ("/healthz", "/readyz") or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        waited_for = sorted(one.name for one in self._actors() if one.status in NOT_READY) if path == "/readyz" else []
        answer = JSONResponse(
            {"status": "ok"} if not waited_for else {"status": "starting", "waits_for": waited_for},
            status_code=503 if waited_for else 200,
        )
        await answer(scope, receive, send)
