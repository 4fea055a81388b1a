"""Several daemons on one NATS and one PostgreSQL: who this one is, whether it is alone, and what a standby answers.

What must be done by one alone runs under a lease (`actors.system.leadership`); the others stand by, read along, and
take orders. With SQLite there is one daemon: a file lock beside the database keeps a second one from starting.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from actors.store.engine import sqlite_file
from actors.system.errors import DependencyUnavailable
from actors.system.leadership import Leadership, Meanwhile
from daemon.collectors.figures import counter, gauge
from daemon.errors import StartFailed

log = structlog.get_logger(__name__)
_SOLE_SECONDS = 60.0
"""Time of the lease where nobody else can be there: long enough for any pause of a busy machine."""
_LOCK_SECONDS = 15.0
"""That a daemon which is ending has to be gone: longer than it drains."""
_ANYWHERE = ("/api/freeze", "/api/thaw", "/api/promote", "/api/rollback", "/api/dead/")
"""What any daemon takes: it goes into the store and over the bus to the one that leads."""


class Member:
    """This daemon among several (docs/several-machines.md)."""

    def __init__(self, address: str, lease_seconds: float, *, sole: bool) -> None:
        """
        Args:
            address: URL at which the others' users reach its control API.
            lease_seconds: so long after a leader has died another daemon may lead; it also has to manage that long
                without the database. With SQLite it has no effect.
            sole: nobody else can be there.
        """
        # Two daemons may be given one name; their leases must not be taken for one another's.
        self.holder = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self.address = address
        self.sole = sole
        self.seconds = max(lease_seconds, _SOLE_SECONDS) if sole else lease_seconds

    def leadership(self, leases: Any, on_taken: Callable[[], None]) -> Leadership:
        """Its part in the lease."""
        return Leadership(
            leases, holder=self.holder, about=self.address, seconds=self.seconds, sole=self.sole, on_taken=on_taken
        )


@contextlib.contextmanager
def sole_use(store_url: str) -> Generator[bool]:
    """Whether this process has the database to itself, as it has with SQLite; until the end.

    A second daemon on one SQLite file is refused and does not stand by: a leader that hangs in mid-transaction would
    keep the file locked, so it could not take over when it is needed.
    """
    database = sqlite_file(store_url)
    if database is None:
        yield False
        return
    path = database.with_name(f"{database.name}.daemon")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, path)
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield True
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    end, said = time.monotonic() + _LOCK_SECONDS, False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            other = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
        if time.monotonic() > end:
            raise StartFailed(
                f"another daemon (process {other}) works with this database ({path}); end it first. Several daemons "
                "need one PostgreSQL: set database.url, see docs/several-machines.md"
            )
        if not said:
            log.info("waits_for_other_daemon", process=other, seconds=_LOCK_SECONDS)
            said = True
        time.sleep(0.1)  # before anything runs that could be kept waiting


def leader_view(leadership: Leadership, member: Member) -> Mapping[str, Any]:
    """For `/api/status`."""
    standing = leadership.standing
    return {
        "name": standing.holder,
        "here": leadership.leading,
        "address": standing.about,
        "epoch": standing.epoch,
        "since": standing.since,
        "self": member.holder,
        "terms": leadership.terms,
        "lost": leadership.lost,
    }


def reading_along(
    start: Callable[[], Awaitable[object]], again: Callable[[], Awaitable[object]], seconds: float
) -> Meanwhile:
    """What a daemon that stands by does to answer for a singleton: `start`, then `again` every so often, for ever."""

    async def run() -> None:
        while True:
            try:
                await start()
                while True:
                    await anyio.sleep(seconds)
                    await again()
            except DependencyUnavailable:
                await anyio.sleep(seconds)

    return run


def leader_figures(leadership: Leadership, singletons: CollectorRegistry) -> Iterator[Metric]:
    """Who leads, and the figures of the singletons, which mean something where they run alone."""
    yield gauge("evolved_leader", "1 where the singletons run.", leadership.leading)
    yield gauge("evolved_leader_epoch", "Epoch of the lease, as last seen.", leadership.standing.epoch)
    yield counter("evolved_leader_terms", "Times that this daemon came to lead.", leadership.terms)
    yield counter("evolved_leader_lost", "Times that it lost the lease against its will.", leadership.lost)
    if leadership.leading:
        yield from singletons.collect()


class StandbyRefuses:
    """ASGI middleware: a daemon that stands by shows everything and takes orders; what changes the memory of the
    singletons is done where they are."""

    def __init__(self, app: ASGIApp, leader: Callable[[], Mapping[str, Any]]) -> None:
        self._app, self._leader = app, leader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return await self._app(scope, receive, send)
        leader = self._leader()
        if not leader or leader["here"] or str(scope["path"]).startswith(_ANYWHERE):
            return await self._app(scope, receive, send)
        name, address = leader["name"], leader["address"]
        where = f"send it to {address}, where {name} leads" if name else "nobody leads yet"
        text = f"this daemon stands by and cannot do that: {where}"
        await JSONResponse({"error": {"message": text}}, status_code=409)(scope, receive, send)
