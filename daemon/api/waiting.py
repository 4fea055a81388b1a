"""What a daemon answers while another one leads: that it lives, its figures, and where to ask."""

from collections import Counter
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from actors.system.lifecycle import ActorState
from daemon.api.control import behind_door, metrics
from daemon.tap.keys import KeyRing


class Waiting:
    """`/healthz` is 200, `/readyz` and everything else 503 with the name of the one that leads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.reason = "nobody is known to lead"
        """Why it does not lead, and where to ask instead."""

    def app(self, allowed_hosts: Sequence[str], keys: KeyRing | None = None) -> Starlette:
        """The ASGI application; see `Control.app`."""
        return behind_door(
            [Route("/metrics", metrics(self._registry))], self, actors=self._actors, allowed_hosts=allowed_hosts,
            keys=keys, refused=Counter(),
        )  # fmt: skip

    def _actors(self) -> list[ActorState]:
        return [ActorState(name=f"the lead ({self.reason})", status="starting", critical=True)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"this daemon waits to lead: {self.reason}"
        await JSONResponse({"error": {"message": message}}, status_code=503)(scope, receive, send)
