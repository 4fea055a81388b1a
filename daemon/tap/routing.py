"""What the daemon tells the running tap: which engine is the canary, which take nothing new (`actors.messages.routes`).

The file is read when it has changed, a few times a second; a tap that comes up later finds it too. If nobody renews it
in time, the daemon is away: nothing is closed any more, and the canary gets no new trajectories, for nobody watches it.
"""

import asyncio
import os
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
        """
        Args:
            clock: unix seconds.
        """
        self._path, self._router, self._clock = path, router, clock
        self._stamp: tuple[int, int, int] | None = None
        self._routes = _NOTHING
        self._stale = False
        self._broken = ""
        self.errors = 0
        """Times that it could not be read, or named an engine that the tap does not have."""

    async def watch(self, seconds: float) -> None:
        """Look every `seconds`, for ever. A tap with one engine needs none of it."""
        while self._router.many:
            self.look()
            await asyncio.sleep(seconds)

    def look(self) -> None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._stamp, self._routes = None, _NOTHING  # no daemon has ever run here, or it has one engine now
            self._apply()
            return
        except OSError as error:
            self._problem(str(error))
            return
        # A rename gives another inode, so that no clock is too coarse to notice.
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._routes = read_routes(self._path)
            except (OSError, msgspec.DecodeError) as error:
                self._problem(str(error))
                return
            self._known()
        self._apply()

    def _known(self) -> None:
        routes = self._routes
        names = {routes.canary, *routes.closed, *routes.versions} - {""}
        unknown = sorted(name for name in names if self._router.named(name) is None)
        if unknown:
            self._problem(f"unknown engines {unknown}: engines and the daemon's engines need the same names")
        elif self._broken:
            self._broken = ""
            log.info("routes_usable", path=str(self._path))

    def _apply(self) -> None:
        routes, router = self._routes, self._router
        stale = self._clock() > routes.until
        if stale != self._stale:
            self._stale = stale
            if routes is not _NOTHING:
                (log.warning if stale else log.info)("routes_stale" if stale else "routes_fresh", canary=routes.canary)
        router.canary = router.named(routes.canary) if routes.canary else None
        router.share = 0.0 if stale else min(1.0, max(0.0, routes.share))
        for one in router.upstreams:
            one.closed = one.name in routes.closed and not stale

    def _problem(self, reason: str) -> None:
        self.errors += 1
        if reason != self._broken:
            self._broken = reason
            log.error("routes_unusable", path=str(self._path), reason=reason)
