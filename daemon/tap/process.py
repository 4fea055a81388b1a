"""The tap as a process: drains on SIGTERM, and tells the service manager. SIGHUP means nothing to it.

Under systemd its socket unit keeps what arrives during a restart for the next one; without, a second tap serves
meanwhile, for one that drains has let go of the port.
"""

import asyncio
import gc
import os
import signal
from typing import Any, Protocol

import anyio
import structlog
import uvloop
from anyio.abc import TaskStatus

from daemon.tap.server import Bound, Tap
from daemon.tap.settings import TapSettings
from daemon.tap.sockets import inherited

_GARBAGE = 20_000
"""Objects made between two looks for cyclic garbage; calls leave next to none."""

log = structlog.get_logger(__name__)


class ServiceManager(Protocol):
    """Who is told how the process does; `actors.system.notify.Notify` is one."""

    watchdog_seconds: float

    def ready(self, status: str = "") -> None: ...
    def alive(self) -> None: ...
    def stopping(self) -> None: ...


class _Ready(TaskStatus[Bound]):
    """Tells the service manager once the tap listens."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager

    def started(self, value: Bound | None = None) -> None:
        self._manager.ready(f"agents on port {value.port}" if value is not None and value.port else "")


async def _until_signal(
    settings: TapSettings, redaction: dict[str, Any] | None, manager: ServiceManager | None
) -> None:  # fmt: skip
    stop, loop = anyio.Event(), asyncio.get_running_loop()

    def end() -> None:
        if manager is not None:
            manager.stopping()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    told = _Ready(manager) if manager is not None else anyio.TASK_STATUS_IGNORED
    fed = loop.create_task(_feed(manager, stop)) if manager is not None and manager.watchdog_seconds else None
    try:
        await Tap(settings, redaction, inherited(os.environ, os.getpid())).run(stop, told)
    finally:
        if fed is not None:
            fed.cancel()


async def _feed(manager: ServiceManager, stop: anyio.Event) -> None:
    """Tell the watchdog that this loop turns; a drain has the stop timeout instead."""
    while not stop.is_set():
        manager.alive()
        with anyio.move_on_after(manager.watchdog_seconds / 2):
            await stop.wait()


def main(
    settings: TapSettings, redaction: dict[str, Any] | None = None, *, manager: ServiceManager | None = None
) -> None:
    """Run until SIGTERM or SIGINT, on the sockets that systemd passes; `manager` hears how it goes."""
    # A closed terminal or a log rotation must not end it without a drain.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # What is there now stays: looking through it over and over is what makes the slowest calls slow.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    uvloop.run(_until_signal(settings, redaction, manager))
