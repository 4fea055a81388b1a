"""The supervisor: starts tasks, restarts the one that fails, gives up in the end, and drains on a signal.

A failing task is restarted alone, after a jittered, growing delay. A task without a heartbeat is cancelled and
restarted. A critical one that keeps failing, or stalls again at once, ends the process (`Escalated`), for systemd to
start afresh; one that ignores its cancellation ends it on the spot.
"""

import contextlib
import os
import random
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from typing import cast

import anyio
import msgspec
import structlog

from actors.system.errors import Escalated, Stalled
from actors.system.lifecycle import ActorState, Lifecycle, Restart, Status, Task, Unit
from actors.system.notify import Notify

_log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10.0
"""That tasks have from the beginning of a drain; whoever stops the process from outside must give it longer."""
_GONE_SECONDS = 30.0
"""That a task has to end in once it is cancelled."""


class SystemState(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor at one moment, for `/readyz`, the dashboard and metrics."""

    ready: bool
    """Every critical task is ready."""
    draining: bool
    actors: tuple[ActorState, ...]


class Supervisor:
    """Runs tasks until all have ended, or a signal or `drain` ends them."""

    def __init__(
        self,
        *,
        rng: random.Random,
        notify: Notify | None = None,
        drain_seconds: float = DRAIN_SECONDS,
        watch_seconds: float = 1.0,
        leave: Callable[[], object] = lambda: os._exit(1),
    ) -> None:
        """
        Args:
            leave: ends the process where a task does not let it end by itself.
        """
        self._rng = rng
        self._notify = notify or Notify()
        self._drain_seconds = drain_seconds
        self._watch_seconds, self._leave = watch_seconds, leave
        self._units: dict[str, Unit] = {}
        self._draining = anyio.Event()
        self._escalated: Escalated | None = None
        self._told_ready = False
        self._tasks: anyio.CancelScope | None = None

    def add(self, name: str, task: Task, restart: Restart | None = None) -> None:
        """Register `task` under a unique `name`, before `run`. Returning ends a task for good; raising restarts it."""
        if name in self._units:
            raise ValueError(f"two tasks are named {name!r}")
        self._units[name] = Unit(name, task, restart or Restart())

    def state(self) -> SystemState:
        """What every task is at, now."""
        now = anyio.current_time()
        units = self._units.values()
        return SystemState(
            ready=self._is_ready(),
            draining=self._draining.is_set(),
            actors=tuple(unit.state(now) for unit in units),
        )

    def drain(self) -> None:
        """Ask every task to finish what it has in hand and return; the rest is cancelled at the deadline."""
        if self._draining.is_set():
            return
        self._notify.stopping()
        _log.info("draining", seconds=self._drain_seconds)
        self._draining.set()
        for unit in self._units.values():
            unit.interrupt()

    async def run(self, *, signals: bool = True) -> bool:
        """Run to the end.

        Returns:
            True if every task came to its end by itself, False if the drain deadline cut one off.
        """
        with anyio.CancelScope() as tasks:
            self._tasks = tasks
            async with self._beside(signals, tasks), anyio.create_task_group() as group:
                for unit in self._units.values():
                    group.start_soon(self._keep, unit, name=unit.name)
        if self._escalated is not None:
            raise self._escalated
        return not tasks.cancelled_caught

    @contextlib.asynccontextmanager
    async def _beside(self, signals: bool, tasks: anyio.CancelScope) -> AsyncGenerator[None]:
        with _listening(signals) as received:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                group.start_soon(self._cut_off, tasks)
                if received is not None:
                    group.start_soon(self._obey, received)
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()

    async def _keep(self, unit: Unit) -> None:
        delay, failures, stalled = unit.restart.first_delay, 0, float("-inf")
        while True:
            began = anyio.current_time()
            error = await self._once(unit)
            if error is None:
                unit.set("ended")
                return
            now = anyio.current_time()
            lived = now - began > unit.restart.window
            delay, failures = (unit.restart.first_delay, 1) if lived else (delay, failures + 1)
            unit.restarts += 1
            unit.last_error = f"{type(error).__name__}: {error}"[:500]
            again = isinstance(error, Stalled) and now - stalled < 2 * unit.restart.stall_seconds
            stalled = now if isinstance(error, Stalled) else stalled
            if unit.restart.critical and (again or failures > unit.restart.max_restarts):
                unit.set("failed")
                self._give_up(unit, error)
                return
            if self._draining.is_set():
                _log.warning("task_failed_draining", task=unit.name, error=unit.last_error, exc_info=error)
                unit.set("failed")
                return
            pause = delay * (0.5 + self._rng.random())
            delay = min(delay * 2, unit.restart.max_delay)
            unit.set("backoff")
            _log.error("task_failed", task=unit.name, error=unit.last_error, restart_in=round(pause, 3), exc_info=error)
            with unit.interruptible(self._draining):
                await anyio.sleep(pause)
            if self._draining.is_set():
                unit.set("failed")
                return

    async def _once(self, unit: Unit) -> Exception | None:
        """One incarnation: None if it returned, its error if it raised."""
        lifecycle = Lifecycle(unit, self._draining, self._on_ready)
        unit.born()
        try:
            with anyio.CancelScope() as unit.scope:
                await unit.task(lifecycle)
                return None
        except ExceptionGroup as group:
            return _innermost(group)
        except BaseExceptionGroup as group:
            # Cancelled from outside, and the clean-up failed on top: only the cancellation may travel on.
            errors, rest = group.split(Exception)
            _log.error("task_failed_cancelled", task=unit.name, error=str(errors), exc_info=errors)
            if rest is not None:
                raise rest from None
            return None
        except Exception as error:
            return error
        finally:
            unit.scope = None
        # Only the watch cancels this scope: the drain deadline and escalation cancel one further out.
        return Stalled(f"no heartbeat for {unit.restart.stall_seconds:g} s")

    def _give_up(self, unit: Unit, error: Exception) -> None:
        _log.error("task_gave_up", task=unit.name, error=unit.last_error)
        if self._escalated is None and self._tasks is not None:
            self._escalated = Escalated(unit.name, unit.restarts)
            self._escalated.__cause__ = error
            self._tasks.cancel()

    def _is_ready(self) -> bool:
        critical = [unit for unit in self._units.values() if unit.restart.critical]
        return all(unit.status in ("ready", "ended") for unit in critical)

    def _on_ready(self) -> None:
        if not self._told_ready and self._is_ready():
            self._told_ready = True
            self._notify.ready("all critical actors are ready")
            _log.info("system_ready", tasks=len(self._units))

    async def _watch(self) -> None:
        watchdog = self._notify.watchdog_seconds
        every = min(self._watch_seconds, watchdog / 2) if watchdog else self._watch_seconds
        while True:
            await anyio.sleep(every)
            now = anyio.current_time()
            for unit in self._units.values():
                if not unit.stalled(now):
                    continue
                if unit.status != "stalled":
                    _log.error("task_stalled", task=unit.name, silent=round(unit.beat_age(now), 1))
                    unit.set("stalled")
                    if unit.scope is not None:
                        unit.scope.cancel()
                elif unit.restart.critical and unit.beat_age(now) > unit.restart.stall_seconds + _GONE_SECONDS:
                    _log.critical("task_ignores_cancellation", task=unit.name, silent=round(unit.beat_age(now), 1))
                    self._leave()
            if watchdog:
                self._notify.alive()

    async def _cut_off(self, tasks: anyio.CancelScope) -> None:
        """Cancel what still runs when the drain's time is over."""
        await self._draining.wait()
        await anyio.sleep(self._drain_seconds)
        # Said before they are cancelled: their clean-up takes time, and whoever waits outside may not grant it.
        left = [unit.name for unit in self._units.values() if not unit.ended]
        _log.warning("drain_deadline_passed", tasks=left, seconds=self._drain_seconds)
        tasks.cancel()

    async def _obey(self, received: AsyncIterator[signal.Signals]) -> None:
        async for _ in received:
            self.drain()


@contextlib.contextmanager
def _listening(signals: bool) -> Generator[AsyncIterator[signal.Signals] | None]:
    if not signals:
        yield None
        return
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        yield received


def _innermost(error: Exception) -> Exception:
    """The error itself where task groups have wrapped it alone."""
    while isinstance(error, ExceptionGroup):
        members = cast("ExceptionGroup[Exception]", error).exceptions
        if len(members) != 1:
            break
        error = members[0]
    return cast(Exception, error)


__all__ = ["ActorState", "Lifecycle", "Restart", "Status", "Supervisor", "SystemState", "Task"]
