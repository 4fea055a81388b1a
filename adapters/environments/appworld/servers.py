"""Server processes of AppWorld: one for each attempt, a bounded number at a time, forked by one that has it imported.

An attempt is reached by HTTP over a Unix socket: AppWorld's environment server executes whatever code it is sent and
asks for no key, so nobody else on the machine should be able to connect to it.
"""

import json
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import structlog

from actors.ports.errors import EnvironmentFailed
from adapters.environments.line_worker import WorkerDied, WorkerProcess

_log = structlog.get_logger(__name__)
MOST_DEATHS = 5
DEATHS_WITHIN = 60.0
MOST_ANSWER = 64 << 20
"""Bytes of one answer."""
_REASON = 300
"""Bytes of an answer that is told on."""


class Server:
    """One attempt's process."""

    def __init__(self, pool: "ServerPool", template: WorkerProcess, pid: int, socket: str, task: str) -> None:
        self._pool, self.template, self.pid, self._task = pool, template, pid, task
        # A connection for each request: what keeps an idle one goes by a clock that AppWorld stops.
        limits = httpx.Limits(max_keepalive_connections=0)
        transport = httpx.AsyncHTTPTransport(uds=socket, verify=False, limits=limits, trust_env=False)
        self._client = httpx.AsyncClient(
            transport=transport,
            base_url="http://appworld",
            timeout=None,  # noqa: S113 - there is one deadline around all of a request
            trust_env=False,
        )
        self.used = pool.clock()
        self.open = True
        self._why = "the attempt was closed"

    async def post(self, operation: str, **fields: Any) -> Any:
        """Ask AppWorld's environment server (`appworld/serve/environment.py`) about our task."""
        return await self._ask("POST", operation, {"task_id": self._task, **fields})

    async def state(self) -> Any:
        """A digest of each table that has rows, by app; raises as `post`."""
        return await self._ask("GET", "state", None)

    async def aclose(self) -> None:
        await self.end("the attempt was closed")

    async def end(self, why: str) -> None:
        """End the process; every later request is answered with `why`."""
        if not self.open:
            return
        self.open, self._why = False, why
        with anyio.CancelScope(shield=True):
            try:
                await self._client.aclose()
                await self._pool.ask(self.template, "end", pid=self.pid)
            except WorkerDied:
                return  # it went with its template
            finally:
                self._pool.let_go(self)

    async def _ask(self, method: str, operation: str, body: dict[str, Any] | None) -> Any:
        if not self.open:
            raise EnvironmentFailed(self._why)
        self.used = self._pool.clock()
        try:
            with anyio.fail_after(self._pool.deadline):
                status, content = await self._exchange(method, operation, body)
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            late = isinstance(error, TimeoutError)
            why = f"no answer to {operation!r} in {self._pool.deadline:g} seconds" if late else f"{error!r}"
            self._pool.deaths += 1
            _log.warning("environment_server_died", why=why)
            await self.end(f"AppWorld's server process has died or was killed: {why}")
            raise EnvironmentFailed(self._why) from error
        if status != httpx.codes.OK:
            told = content[:_REASON].decode("utf-8", "replace")
            raise EnvironmentFailed(f"AppWorld answers {operation!r} with status {status}: {told}")
        try:
            return json.loads(content)["output"]
        except (ValueError, KeyError, TypeError) as error:
            raise EnvironmentFailed(f"AppWorld answers {operation!r} with nonsense: {error}") from error

    async def _exchange(self, method: str, operation: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        content = bytearray()
        async with self._client.stream(method, f"/{operation}", json=body) as response:
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MOST_ANSWER:
                    raise OSError(f"an answer of more than {MOST_ANSWER} bytes")
        return response.status_code, bytes(content)


class ServerPool:
    """Starts and ends the processes.

    Args:
        command: starts the one that forks; its home is appended.
        env: all the variables that it sees, beside HOME, APPWORLD_ROOT and APPWORLD_CACHE.
        data: AppWorld's data directory.
        most: attempts open at a time.
        wait_seconds: for which one more waits until another is closed.
        deadline: seconds for one request to an attempt.
        start_seconds: until AppWorld is imported.
        idle: seconds after which an attempt that nobody touches is given up, when the next one begins.

    Attributes:
        deaths: processes that died or were killed for not answering.
        reaped: attempts that nobody closed.
        refused: attempts that did not begin as there was no room for so long.
    """

    def __init__(
        self, command: Sequence[str], env: dict[str, str], data: Path, *, most: int, wait_seconds: float,
        deadline: float, start_seconds: float, idle: float, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._command, self._env, self._data = command, env, data
        self._most, self._start_seconds = most, start_seconds
        self.wait_seconds, self.deadline, self.idle, self.clock = wait_seconds, deadline, idle, clock
        self._room = anyio.Semaphore(most)
        self._starting = anyio.Lock()
        self._template: WorkerProcess | None = None
        self._home: Path | None = None
        self._held: dict[Server, None] = {}
        self._recent: deque[float] = deque(maxlen=MOST_DEATHS)
        self.deaths = self.reaped = self.refused = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self._held]

    @property
    def template_pid(self) -> int:
        """Of the one that forks, 0 if it does not run."""
        return self._template.pid if self._template is not None and self._template.alive else 0

    async def open(self, task: str, **options: Any) -> Server:
        """A process in which AppWorld has begun `task`.

        Raises:
            EnvironmentFailed: no room for too long, no process, or AppWorld will not have the task.
        """
        await self._reap()
        with anyio.move_on_after(self.wait_seconds) as waiting:
            await self._room.acquire()
        if waiting.cancelled_caught:
            self.refused += 1
            raise EnvironmentFailed(
                f"{self._most} attempts are open and none was closed in {self.wait_seconds:g} seconds, max_instances "
                f"is {self._most}: close attempts or raise it"
            )
        try:
            template = await self._started()
            born = await self.ask(template, "fork", data=str(self._data))
        except BaseException:
            self._room.release()
            raise
        server = Server(self, template, born["pid"], born["socket"], task)
        self._held[server] = None
        try:
            await server.post("initialize", **options)
        except BaseException:
            await server.aclose()
            raise
        return server

    def let_go(self, server: Server) -> None:
        if server in self._held:
            del self._held[server]
            self._room.release()

    async def ask(self, template: WorkerProcess, operation: str, **fields: Any) -> Any:
        try:
            return await template.ask(operation, **fields)
        except WorkerDied as error:
            self._bury(template, str(error))
            raise

    def close(self) -> None:
        for server in list(self._held):
            server.open = False
            self.let_go(server)
        if self._template is not None:
            self._template.kill()
        self._tidy()

    async def _started(self) -> WorkerProcess:
        async with self._starting:
            if self._template is not None and not self._template.alive:
                self._bury(self._template, "found dead")
            if self._template is None:
                self._template = await self._start()
            return self._template

    async def _start(self) -> WorkerProcess:
        if len(self._recent) == MOST_DEATHS and self.clock() - self._recent[0] < DEATHS_WITHIN:
            raise EnvironmentFailed(
                f"AppWorld's process died {MOST_DEATHS} times within {DEATHS_WITHIN:.0f} seconds; try again later"
            )
        self._home = Path(tempfile.mkdtemp(prefix="aw-"))
        home = str(self._home)
        env = self._env | {"HOME": home, "APPWORLD_ROOT": home, "APPWORLD_CACHE": home}
        template = await WorkerProcess.start([*self._command, home], env, self._start_seconds)
        try:
            with anyio.CancelScope(shield=True):  # whoever comes next would have to start anew
                await template.ask("load")
        except BaseException as error:
            template.kill()
            self._bury(template, str(error))
            raise
        return template

    def _bury(self, template: WorkerProcess, why: str) -> None:
        """The kernel ends the attempts' processes with the one that forked them."""
        template.kill()
        if self._template is not template and self._template is not None:
            return  # others who waited for it hear of its death too
        self._template = None
        self._tidy()
        lost = [server for server in self._held if server.template is template]
        self.deaths += 1
        self._recent.append(self.clock())
        _log.warning("environment_worker_died", why=why, worlds_lost=len(lost))

    def _tidy(self) -> None:
        self._template = None
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    async def _reap(self) -> None:
        """End the attempts that were left alone, and those whose processes went with their template."""
        before = self.clock() - self.idle
        for server in list(self._held):
            if not server.open:
                continue  # somebody else ends it
            if server.used < before:
                self.reaped += 1
                _log.warning("environment_attempt_abandoned", idle_seconds=round(self.clock() - server.used))
                await server.end("the attempt was left alone for so long that it was given up")
            elif not server.template.alive:
                await server.end("AppWorld's process has died")
