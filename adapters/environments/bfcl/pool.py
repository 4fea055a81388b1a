"""Which worker holds which world: a bounded number of workers, started when needed, replaced when they die."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import structlog

from actors.ports.errors import EnvironmentFailed
from adapters.environments.line_worker import WorkerDied, WorkerProcess

_log = structlog.get_logger(__name__)
MOST_DEATHS = 5
DEATHS_WITHIN = 60.0


class Held:
    """A world in a worker: everything that is asked of it goes through here."""

    def __init__(self, pool: "WorkerPool", worker: WorkerProcess, world: int) -> None:
        self._pool, self.worker, self._world = pool, worker, world
        self.used = pool.clock()
        self.open = True

    async def ask(self, operation: str, **fields: Any) -> Any:
        if not self.open:
            raise EnvironmentFailed("the attempt was closed, or left alone for so long that it was given up")
        self.used = self._pool.clock()
        return await self._pool.ask(self.worker, operation, world=self._world, **fields)

    async def aclose(self) -> None:
        """Free the world; without effect the second time, and if the worker is dead."""
        if self.open:
            self._pool.let_go(self)
            if self.worker.alive:
                with anyio.CancelScope(shield=True):
                    try:
                        await self._pool.ask(self.worker, "close", world=self._world)
                    except WorkerDied:
                        return  # the world went with it


class WorkerPool:
    """Workers of one kind.

    Args:
        command: starts a worker.
        env: all the variables that it sees.
        workers: how many processes at most; worlds go to the one that holds the fewest.
        deadline: seconds for one request.
        most: worlds open at a time.
        idle: seconds after which a world that nobody touches is freed, when the next one is opened.
    """

    def __init__(
        self, command: Sequence[str], env: dict[str, str], *, workers: int, deadline: float, most: int, idle: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._command, self._env, self._deadline = command, env, deadline
        self._most, self._idle, self.clock = most, idle, clock
        self._slots: list[WorkerProcess | None] = [None] * workers
        self._starting = anyio.Lock()
        self._held: dict[Held, None] = {}
        self._opening = 0
        self._recent: deque[float] = deque(maxlen=MOST_DEATHS)
        self.deaths = 0
        """Workers that died or were killed."""
        self.reaped = 0
        """Worlds that nobody closed."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._slots if worker is not None and worker.alive]

    async def open(self, **fields: Any) -> tuple[Held, dict[str, Any]]:
        """A new world and its opening.

        Raises:
            EnvironmentFailed: no room, no worker, or the worker will not have it.
        """
        await self._reap()
        self.check_room()
        self._opening += 1
        try:
            worker = await self._least_busy()
            opening = await self.ask(worker, "open", **fields)
        finally:
            self._opening -= 1
        return self.hold(worker, opening["world"]), opening

    def check_room(self) -> None:
        taken = len(self._held) + self._opening
        if taken >= self._most:
            raise EnvironmentFailed(
                f"{taken} attempts are open, max_instances is {self._most}: close attempts or raise it"
            )

    def hold(self, worker: WorkerProcess, world: int) -> Held:
        held = Held(self, worker, world)
        self._held[held] = None
        return held

    def let_go(self, held: Held) -> None:
        held.open = False
        self._held.pop(held, None)

    async def ask(self, worker: WorkerProcess, operation: str, **fields: Any) -> Any:
        """As `WorkerProcess.ask`; a death is counted, and what the worker held is given up."""
        try:
            return await worker.ask(operation, **fields)
        except WorkerDied as error:
            self._bury(worker, str(error))
            raise

    def close(self) -> None:
        for worker in self._slots:
            if worker is not None:
                worker.kill()
        for held in list(self._held):
            self.let_go(held)
        self._slots = [None] * len(self._slots)

    async def _least_busy(self) -> WorkerProcess:
        async with self._starting:
            for slot, worker in enumerate(self._slots):
                if worker is not None and not worker.alive:
                    self._bury(worker, "found dead")
                if self._slots[slot] is None:
                    self._slots[slot] = await self._start()
            running = [worker for worker in self._slots if worker is not None]
        load = dict.fromkeys(running, 0)
        for held in self._held:
            load[held.worker] += 1
        return min(running, key=lambda worker: load[worker])

    async def _start(self) -> WorkerProcess:
        if len(self._recent) == MOST_DEATHS and self.clock() - self._recent[0] < DEATHS_WITHIN:
            raise EnvironmentFailed(
                f"its workers died {MOST_DEATHS} times within {DEATHS_WITHIN:.0f} seconds; try again later"
            )
        return await WorkerProcess.start(self._command, self._env, self._deadline)

    def _bury(self, worker: WorkerProcess, why: str) -> None:
        if worker not in self._slots:
            return  # the others who waited for it hear of its death too
        self._slots[self._slots.index(worker)] = None
        worker.kill()
        lost = [held for held in self._held if held.worker is worker]
        for held in lost:
            self._held.pop(held)
        self.deaths += 1
        self._recent.append(self.clock())
        _log.warning("environment_worker_died", why=why, worlds_lost=len(lost))

    async def _reap(self) -> None:
        """Free the worlds that were left alone: their owner is gone, or has forgotten them."""
        before = self.clock() - self._idle
        for held in [held for held in self._held if held.used < before]:
            self.reaped += 1
            _log.warning("environment_attempt_abandoned", idle_seconds=round(self.clock() - held.used))
            await held.aclose()
