"""The supervisor: starts tasks, restarts the one that fails, gives up in the end, and drains on a signal.

A failing task is restarted alone, after a jittered, growing delay. A task without a heartbeat is cancelled and
restarted. A critical one that keeps failing, or stalls again at once, ends the process (`Escalated`), for systemd to
start afresh; one that ignores its cancellation ends it on the spot.
"""

import os
import random
import signal
from collections.abc import Callable
from typing import cast

import anyio
import msgspec
import structlog

from actors.system.errors import Escalated, Stalled
from actors.system.lifecycle import STALL_SECONDS, ActorState, Lifecycle, Task
from actors.system.notify import Notify
from actors.system.patience import backoff

_log = structlog.get_logger(__name__)

DRAIN_SECONDS = 10.0
"""That tasks have from the beginning of a drain; whoever stops the process from outside must give it longer."""
_GONE_SECONDS = 30.0
"""That a task has to end in once it is cancelled."""
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 30.0
"""Seconds before a restart."""
_LIVED_SECONDS = 60.0
"""A task that lived longer starts again at the first delay, and its failures count anew."""


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
        """`leave` ends the process where a task does not let it end by itself."""
        self._rng, self._notify, self._leave = rng, notify or Notify(), leave
        self._drain_seconds, self._watch_seconds = drain_seconds, watch_seconds
        self._tasks: dict[Lifecycle, Task] = {}
        self._draining = anyio.Event()
        self._escalated: Escalated | None = None
        self._told_ready = False
        self._scope: anyio.CancelScope
        """Of all tasks, in `run`."""

    def add(
        self, name: str, task: Task, *, critical: bool = True, stall_seconds: float = STALL_SECONDS,
        max_restarts: int = 10,
    ) -> None:  # fmt: skip
        """Register `task` under a unique `name`, before `run`. Returning ends a task for good; raising restarts it.

        Args:
            critical: readiness waits for it, and giving it up ends the process; another one is restarted for ever.
            stall_seconds: without a heartbeat for this long it is cancelled and restarted, and given up if it stalls
                again within twice that. Give the longest handler room.
            max_restarts: one more short life in a row, and it is given up: after a minute and a half with ten.
        """
        if any(life.name == name for life in self._tasks):
            raise ValueError(f"two tasks are named {name!r}")
        life = Lifecycle(
            name, self._on_ready, critical=critical, stall_seconds=stall_seconds, max_restarts=max_restarts
        )
        self._tasks[life] = task

    def state(self) -> list[ActorState]:
        """What every task is at, now."""
        return [msgspec.convert(life, ActorState, from_attributes=True) for life in self._tasks]

    @property
    def ready(self) -> bool:
        """Every critical task is."""
        return all(life.status in ("ready", "ended") for life in self._tasks if life.critical)

    def drain(self) -> None:
        """Ask every task to finish what it has in hand and return; the rest is cancelled at the deadline."""
        if self._draining.is_set():
            return
        self._notify.stopping()
        _log.info("draining", seconds=self._drain_seconds)
        self._draining.set()
        for life in self._tasks:
            life.drain()

    async def run(self, *, signals: bool = True) -> bool:
        """Run to the end; False if the drain deadline cut a task off."""
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as beside:
                for watcher in (self._watch, self._cut_off, *([self._obey] if signals else [])):
                    beside.start_soon(watcher)
                async with anyio.create_task_group() as group:
                    for life, task in self._tasks.items():
                        group.start_soon(self._keep, life, task, name=life.name)
                beside.cancel_scope.cancel()
        if self._escalated is not None:
            raise self._escalated
        return not self._scope.cancelled_caught

    async def _keep(self, life: Lifecycle, task: Task) -> None:
        failures, stalled = 0, float("-inf")
        while not life.draining.is_set():
            began = anyio.current_time()
            error = await self._once(life, task)
            if error is None:
                break
            now = anyio.current_time()
            failures = 1 if now - began > _LIVED_SECONDS else failures + 1
            life.restarts += 1
            life.last_error = f"{type(error).__name__}: {error}"[:500]
            again = isinstance(error, Stalled) and now - stalled < 2 * life.stall_seconds
            stalled = now if isinstance(error, Stalled) else stalled
            if life.critical and (again or failures > life.max_restarts):
                self._give_up(life, error)
                break
            pause = backoff(_FIRST_DELAY, failures - 1, _LONGEST_DELAY, self._rng)
            life.set("restarting")
            _log.error("task_failed", task=life.name, error=life.last_error, restart_in=round(pause, 3), exc_info=error)
            await life.pause(pause)
        life.set("ended")

    async def _once(self, life: Lifecycle, task: Task) -> Exception | None:
        """One incarnation: None if it returned, its error if it raised."""
        life.set("starting")
        life.beat()
        try:
            with anyio.CancelScope() as life.scope:
                await task(life)
                return None
        except ExceptionGroup as group:
            return _innermost(group)
        except BaseExceptionGroup as group:
            # Cancelled from outside, and the clean-up failed on top: only the cancellation may travel on.
            errors, rest = group.split(Exception)
            _log.error("task_failed_cancelled", task=life.name, error=str(errors), exc_info=errors)
            if rest is not None:
                raise rest from None
            return None
        except Exception as error:
            return error
        finally:
            life.scope = None
        # Only the watch cancels this scope: the drain deadline and escalation cancel one further out.
        return Stalled(f"no heartbeat for {life.stall_seconds:g} s")

    def _give_up(self, life: Lifecycle, error: Exception) -> None:
        _log.error("task_gave_up", task=life.name, error=life.last_error)
        if self._escalated is None:
            self._escalated = Escalated(life.name, life.restarts)
            self._escalated.__cause__ = error
            self._scope.cancel()

    def _on_ready(self) -> None:
        if not self._told_ready and self.ready:
            self._told_ready = True
            self._notify.ready("all critical actors are ready")
            _log.info("system_ready", tasks=len(self._tasks))

    async def _watch(self) -> None:
        watchdog = self._notify.watchdog_seconds
        every = min(self._watch_seconds, watchdog / 2) if watchdog else self._watch_seconds
        while True:
            await anyio.sleep(every)
            for life in self._tasks:
                silent = life.beat_age
                if life.scope is None or silent <= life.stall_seconds:
                    continue
                if not life.scope.cancel_called:
                    _log.error("task_stalled", task=life.name, silent=round(silent, 1))
                    life.set("restarting")
                    life.scope.cancel()
                elif life.critical and silent > life.stall_seconds + _GONE_SECONDS:
                    _log.critical("task_ignores_cancellation", task=life.name, silent=round(silent, 1))
                    self._leave()
            if watchdog:
                self._notify.alive()

    async def _cut_off(self) -> None:
        """Cancel what still runs when the drain's time is over."""
        await self._draining.wait()
        await anyio.sleep(self._drain_seconds)
        # Said before they are cancelled: their clean-up takes time, and whoever waits outside may not grant it.
        left = [life.name for life in self._tasks if life.status != "ended"]
        _log.warning("drain_deadline_passed", tasks=left, seconds=self._drain_seconds)
        self._scope.cancel()

    async def _obey(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
            async for _ in received:
                self.drain()


def _innermost(error: Exception) -> Exception:
    """The error itself where task groups have wrapped it alone."""
    while isinstance(error, ExceptionGroup):
        members = cast("ExceptionGroup[Exception]", error).exceptions
        if len(members) != 1:
            break
        error = members[0]
    return cast(Exception, error)
