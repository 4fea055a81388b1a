"""What the daemon tells the running tap: which engine is the canary, which take nothing new (`actors.messages.routes`).

The file is read a few times a second; a tap that comes up later finds it too. If nobody renews it in time, the daemon
is away: nothing is closed any more, and the canary gets no new trajectories, for nobody watches it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from actors.messages.routes import Routes, read_routes
from daemon.tap.router import Router

log = structlog.get_logger(__name__)
_NOTHING = Routes(until=0.0)


class Routing:
    """Keeps a router by the routes file."""

    def __init__(self, path: Path, router: Router, *, clock: Callable[[], float]) -> None:
        """`clock`: unix seconds."""
        self._path, self._router, self._clock = path, router, clock
        self._routes = _NOTHING
        self._unusable = ""
        """Why it cannot be used, as it was logged."""
        self.errors = 0
        """Times that it became unusable."""

    async def watch(self, seconds: float) -> None:
        """Look every `seconds`, for ever. A tap with one engine needs none of it."""
        while self._router.many:
            self.look()
            await asyncio.sleep(seconds)

    def look(self) -> None:
        """Take over what the file says; what cannot be read changes nothing."""
        router, unusable = self._router, ""
        try:
            self._routes = read_routes(self._path)
        except FileNotFoundError:
            self._routes = _NOTHING  # no daemon has ever run here, or it has one engine now
        except (OSError, msgspec.DecodeError) as error:
            unusable = str(error)
        routes = self._routes
        stale = self._clock() > routes.until
        router.canary = router.named(routes.canary)
        router.share = 0.0 if stale else min(1.0, max(0.0, routes.share))
        for one in router.upstreams:
            one.closed = one.name in routes.closed and not stale
        unknown = {routes.canary, *routes.closed, *routes.versions} - {"", *(one.name for one in router.upstreams)}
        if unknown:
            unusable = f"unknown engines {sorted(unknown)}: engines and the daemon's engines need the same names"
        elif stale and routes is not _NOTHING:
            unusable = unusable or "nobody has renewed it in time: the daemon is away"
        if unusable != self._unusable:
            self._unusable = unusable
            self.errors += bool(unusable)
            if unusable:
                log.warning("routes_unusable", path=str(self._path), reason=unusable)
            else:
                log.info("routes_usable", path=str(self._path))
