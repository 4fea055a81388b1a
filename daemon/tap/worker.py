"""One of several workers of a tap: what it is told by its parent (`daemon.tap.workers`), and what differs for it."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from daemon.tap.process import ServiceManager
from daemon.tap.route_gossip import RouteGossip
from daemon.tap.segments import worker_spool
from daemon.tap.settings import TapSettings


class Role(msgspec.Struct, frozen=True):
    """Which worker this process is."""

    number: int
    count: int
    parent: int
    directory: Path

    def settings(self, settings: TapSettings) -> TapSettings:
        """This worker's part of the settings: its spool, and an equal share of every limit of the tap as a whole."""
        return msgspec.structs.replace(
            settings,
            workers=1,
            spool_dir=str(worker_spool(settings.spool_dir, self.number)),
            # Its admin socket is its parent's alone.
            admin_host="127.0.0.1",
            max_connections=max(1, settings.max_connections // self.count),
            spool_memory_bytes=max(1 << 20, settings.spool_memory_bytes // self.count),
            spool_disk_bytes=max(1 << 20, settings.spool_disk_bytes // self.count),
        )

    def gossip(self) -> RouteGossip:
        return RouteGossip(self.directory, self.number, self.count)


def role(environment: Mapping[str, str]) -> Role | None:
    """What a parent has told this process; None for a tap that is alone."""
    told = environment.get("EVOLVED_TAP_WORKER", "")
    if not told:
        return None
    number, _, count = told.partition("/")
    directory, parent = environment.get("EVOLVED_TAP_DIRECTORY", ""), environment.get("EVOLVED_TAP_PARENT", "0")
    return Role(int(number), int(count), int(parent), Path(directory))


class ParentBound:
    """A worker's way to its parent; a worker whose parent is gone drains and ends."""

    def __init__(self, manager: ServiceManager, parent: int) -> None:
        self._manager, self._parent = manager, parent
        self.watchdog_seconds = manager.watchdog_seconds

    def ready(self, status: str = "") -> None:
        self._manager.ready(status)

    def alive(self) -> None:
        self._manager.alive()
        if os.getppid() != self._parent:
            os.kill(os.getpid(), signal.SIGTERM)

    def stopping(self) -> None:
        self._manager.stopping()
