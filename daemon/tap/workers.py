"""Several taps as one: a parent that listens, and workers that serve.

    agents ──► listening socket, shared by all ──► worker 0 .. N-1, each with recorder and spool of its own
    parent: starts and restarts them, passes signals on, answers the admin port for all, talks to systemd

The sockets are the parent's and stay open while a worker dies: what waits in them is served by the others, and nobody
is refused. To its workers the parent is what systemd is to a tap: it hears READY=1 and WATCHDOG=1 on a notify socket. A
worker that dies is started again; one that falls silent is killed first. One that keeps dying ends the parent, so that
its own supervisor sees it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from daemon.tap.errors import WorkersFailed
from daemon.tap.process import ServiceManager
from daemon.tap.settings import TapSettings
from daemon.tap.sockets import ADMIN, AGENTS, MIRROR, Sockets, bind, hand_down, inherited, port_of
from daemon.tap.workers_admin import WorkersAdmin

SILENT_SECONDS = 30.0
"""A worker without a sign of life for so long is killed."""
_SIGN_SECONDS = 4.0
"""Workers show two signs of life in this time."""
_START_SECONDS = 60.0
_PAUSE = 0.5
_RESTARTS, _WINDOW = 10, 120.0
"""So many restarts within so many seconds, and the parent gives up."""
_GRACE = 10.0
"""After the workers' own drain deadline."""

log = structlog.get_logger(__name__)


class Worker:
    """One worker process, through all its lives."""

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self.notify_path, self.admin_path = directory / f"notify.{number}", directory / f"admin.{number}"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.setblocking(False)
        self.notify.bind(str(self.notify_path))
        self.admin = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.admin.bind(str(self.admin_path))
        self.admin.listen(64)
        self.process: asyncio.subprocess.Process | None = None
        self.ready = False
        self.heard = 0.0
        """Monotonic seconds of the last sign of life."""
        self.restarts = 0

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    def send(self, number: int) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Workers:
    """The parent."""

    def __init__(
        self, settings: TapSettings, command: Sequence[str], manager: ServiceManager | None, sockets: Sockets
    ) -> None:
        """`command` starts a worker, whose environment tells it which; `manager` hears when all are ready, and alive
        while all are; `sockets` listen already.
        """
        self._settings, self._command, self._manager, self._given = settings, list(command), manager, sockets
        self._workers: list[Worker] = []
        self._stopping = asyncio.Event()
        self._failed = ""
        self._deaths: deque[float] = deque()
        self._told = False

    @property
    def workers(self) -> Sequence[Worker]:
        return self._workers

    async def run(self) -> None:
        settings, loop = self._settings, asyncio.get_running_loop()
        with tempfile.TemporaryDirectory(prefix="evolved-tap-") as name, contextlib.ExitStack() as stack:
            directory = Path(name)
            shared = self._listen(stack)
            admin = WorkersAdmin(settings, self.workers)
            self._workers += [Worker(number, directory) for number in range(settings.workers)]
            for worker in self._workers:
                loop.add_reader(worker.notify, self._hear, worker)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop)
            pages = self._given.get(ADMIN) or bind(settings.admin_host, settings.admin_port, "tap.admin")
            try:
                async with asyncio.TaskGroup() as group:
                    servers = [await loop.create_server(admin.connection, sock=one) for one in pages]
                    log.info("tap_workers", workers=settings.workers, port=port_of(shared.get(AGENTS, [])))
                    helpers = [group.create_task(self._watch()), group.create_task(admin.watch())]
                    lives = [group.create_task(self._keep(one, shared, directory)) for one in self._workers]
                    await asyncio.wait(lives)
                    for helper in helpers:
                        helper.cancel()
                    for server in servers:
                        server.close()
                    admin.close()
            finally:
                for worker in self._workers:
                    loop.remove_reader(worker.notify)
                    worker.send(signal.SIGKILL)
                    worker.notify.close()
                    worker.admin.close()
        if self._failed:
            raise WorkersFailed(self._failed)

    def _listen(self, stack: contextlib.ExitStack) -> dict[str, list[socket.socket]]:
        settings = self._settings
        shared = {name: list(self._given.get(name, [])) for name in (AGENTS, MIRROR)}
        if not shared[AGENTS]:
            shared[AGENTS] = bind(settings.host, settings.port, "tap.listen")
        if not shared[MIRROR] and settings.mirror_port is not None:
            shared[MIRROR] = bind(settings.mirror_host, settings.mirror_port, "tap.mirror")
        for one in (*shared[AGENTS], *shared[MIRROR]):
            # Listening already: a worker that comes later finds what waits.
            one.listen(1024)
            stack.callback(one.close)
        return shared

    async def _keep(self, worker: Worker, shared: Mapping[str, list[socket.socket]], directory: Path) -> None:
        while not self._stopping.is_set():
            worker.ready, worker.heard = False, time.monotonic() + _START_SECONDS - SILENT_SECONDS
            sockets = {**shared, ADMIN: [worker.admin]}
            worker.process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.DEVNULL,
                pass_fds=[one.fileno() for many in sockets.values() for one in many],
                env=self._environment(worker, sockets, directory),
                # Ctrl-C at a terminal is for us, who pass it on.
                start_new_session=True,
            )
            if self._stopping.is_set():
                worker.send(signal.SIGTERM)
            status = await worker.process.wait()
            worker.ready = False
            if self._stopping.is_set():
                return
            worker.restarts += 1
            now = time.monotonic()
            self._deaths.append(now)
            while self._deaths[0] < now - _WINDOW:
                self._deaths.popleft()
            log.error("tap_worker_ended", worker=worker.number, status=status, restarts=worker.restarts)
            if len(self._deaths) > _RESTARTS:
                self._failed = f"workers ended {len(self._deaths)} times within {_WINDOW:g} s; the log says why"
                self._stop()
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _PAUSE * min(8, len(self._deaths)))

    def _environment(self, worker: Worker, sockets: Sockets, directory: Path) -> dict[str, str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LISTEN_")}
        return environment | {
            "EVOLVED_TAP_WORKER": f"{worker.number}/{self._settings.workers}",
            "EVOLVED_TAP_DIRECTORY": str(directory),
            "EVOLVED_TAP_PARENT": str(os.getpid()),
            "NOTIFY_SOCKET": str(worker.notify_path),
            "WATCHDOG_USEC": str(int(_SIGN_SECONDS * 1e6)),
            **hand_down(sockets),
        }

    def _hear(self, worker: Worker) -> None:
        with contextlib.suppress(OSError):
            while True:
                words = worker.notify.recv(4096).split(b"\n")
                worker.heard = max(worker.heard, time.monotonic())
                if b"READY=1" in words and worker.pid:
                    worker.ready = True
                    self._tell()

    def _tell(self) -> None:
        if self._manager is not None and not self._told and all(one.ready for one in self._workers):
            self._told = True
            self._manager.ready(f"{len(self._workers)} workers")

    async def _watch(self) -> None:
        """Kill who is silent; feed the service manager's watchdog while nobody is, and nobody is missing."""
        manager = self._manager
        pause = min(2.0, manager.watchdog_seconds / 4) if manager is not None and manager.watchdog_seconds else 2.0
        end = 0.0
        while True:
            await asyncio.sleep(pause)
            now = time.monotonic()
            if self._stopping.is_set():
                end = end or now + self._settings.drain_seconds + _GRACE
                if now > end:
                    log.error("tap_worker_stuck", pids=[one.pid for one in self._workers if one.pid])
                    for worker in self._workers:
                        worker.send(signal.SIGKILL)
                continue
            silent = [one for one in self._workers if one.pid and now - one.heard > SILENT_SECONDS]
            for worker in silent:
                log.error("tap_worker_silent", worker=worker.number, seconds=SILENT_SECONDS)
                worker.heard = now
                worker.send(signal.SIGKILL)
            if manager is not None and manager.watchdog_seconds and all(one.ready for one in self._workers):
                manager.alive()

    def _stop(self) -> None:
        if not self._stopping.is_set():
            if self._manager is not None:
                self._manager.stopping()
            self._stopping.set()
        for worker in self._workers:
            worker.send(signal.SIGTERM)


def main(settings: TapSettings, arguments: Sequence[str], *, manager: ServiceManager | None = None) -> None:
    """Run until SIGTERM; the workers get the same `arguments`, the subcommand first."""
    command = [sys.executable, "-m", "daemon.cli", *arguments]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as a tap that is alone
    asyncio.run(Workers(settings, command, manager, inherited(os.environ, os.getpid())).run())
