"""The tap as a process: drains on SIGTERM, and tells the service manager. SIGHUP means nothing to it.

Under systemd its socket unit keeps what arrives during a restart for the next one; without, a second tap serves
meanwhile, for one that drains has let go of the port.
"""

import asyncio
import os
import signal
from typing import Any

import anyio
import uvloop

from actors.system.notify import Notify
from daemon.tap.server import Bound, Tap
from daemon.tap.settings import TapSettings
from daemon.tap.sockets import inherited


async def _until_signal(settings: TapSettings, redaction: dict[str, Any] | None, notify: Notify) -> None:
    stop, loop = anyio.Event(), asyncio.get_running_loop()

    def end() -> None:
        notify.stopping()
        stop.set()

    def ready(bound: Bound) -> None:
        notify.ready(f"agents on port {bound.port}" if bound.port else "")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    fed = loop.create_task(_feed(notify, stop))
    try:
        await Tap(settings, redaction, inherited(os.environ, os.getpid())).run(stop, ready)
    finally:
        fed.cancel()


async def _feed(notify: Notify, stop: anyio.Event) -> None:
    """Tell the watchdog that this loop turns; a drain has the stop timeout instead."""
    while notify.watchdog_seconds and not stop.is_set():
        notify.alive()
        with anyio.move_on_after(notify.watchdog_seconds / 2):
            await stop.wait()


def main(settings: TapSettings, redaction: dict[str, Any] | None = None, notify: Notify | None = None) -> None:
    """Run until SIGTERM or SIGINT, on the sockets that systemd passes; the service manager hears how it goes."""
    # A closed terminal or a log rotation must not end it without a drain.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    uvloop.run(_until_signal(settings, redaction, notify or Notify()))
