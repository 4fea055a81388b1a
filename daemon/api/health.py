"""Whether the daemon lives and is ready: for probes of load balancers, which have no key and call the
process by its address.

GET /healthz   200 while it answers
GET /readyz    200 once every actor has started, while all that are needed get on, and the head of each queue moves; 503
               with the names of the others
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from actors.system.bus import Depth
from actors.system.lifecycle import ActorState

STUCK_SECONDS = 120.0
"""What is needed and does not get on for so long is not ready: an engine that restarts, or a broker, is back before."""
HEAD_SECONDS = 1800.0
"""A record at the head of a queue for so long is not being handled: twice what the longest handler may be silent."""


class Heads:
    """Since when each queue's head is where it is."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        """By durable: how far it is acked, and since when."""

    def look(self, depths: Mapping[str, Depth], now: float) -> None:
        """As the queues stand `now` (monotonic seconds)."""
        for name, depth in depths.items():
            acked, since = self._seen.get(name, (depth.acked, now))
            moves = depth.acked != acked or not (depth.waiting or depth.in_flight)
            self._seen[name] = depth.acked, now if moves else since

    def still(self, now: float) -> set[str]:
        """Queues whose head does not move."""
        return {name for name, (_, since) in self._seen.items() if now - since > HEAD_SECONDS}


class Health:
    """ASGI middleware before the door: answers the two, and tells nothing else."""

    def __init__(
        self, app: ASGIApp, *, actors: Callable[[], Sequence[ActorState]], still: Callable[[], Collection[str]] = set
    ) -> None:
        """
        Args:
            still: queues whose head does not move.
        """
        self._app, self._actors, self._still = app, actors, still

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in ("/healthz", "/readyz") or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        actors = self._actors() if path == "/readyz" else ()
        starting = sorted(one.name for one in actors if one.status == "starting")
        still = self._still() if path == "/readyz" else ()
        stuck = sorted({*still, *(one.name for one in actors if one.critical and one.unready_seconds > STUCK_SECONDS)})
        told: dict[str, object] = {"status": "ok"}
        if stuck:
            told = {"status": "stuck", "waits_for": stuck}
        elif starting:
            told = {"status": "starting", "waits_for": starting}
        await JSONResponse(told, status_code=503 if stuck or starting else 200)(scope, receive, send)
