"""A supervised task: its restart policy, its state, and the `Lifecycle` that it is handed each time it is started."""

import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Literal

import anyio
import msgspec

Status = Literal["new", "starting", "ready", "waiting", "backoff", "stalled", "failed", "ended"]
"""`waiting`: alive, for something outside to come back. `failed`: given up."""


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is restarted."""

    first_delay: float = 0.1
    """Seconds; doubles with each restart, times 0.5 to 1.5 by chance."""
    max_delay: float = 30.0
    max_restarts: int = 10
    """One more short life in a row, and a critical task is given up: after a minute and a half with these delays."""
    window: float = 60.0
    """Seconds. A task that lived longer starts again at `first_delay`, and its failures count anew."""
    critical: bool = True
    """Readiness waits for it, and giving it up ends the process. One that is not is started again for ever."""
    stall_seconds: float = 120.0
    """Without a heartbeat for this long it is cancelled and restarted, and given up if it stalls again within twice
    that. Give the longest handler room."""


class ActorState(msgspec.Struct, frozen=True, kw_only=True):
    """A task at one moment."""

    name: str
    status: Status
    restarts: int
    last_error: str
    beat_age: float
    """Seconds since the last sign of life."""
    note: str
    """What it waits for, if it waits."""
    critical: bool
    unready_seconds: float = 0.0
    """How long it has not been at work, over all its restarts."""


class Unit:
    """A task as the supervisor keeps it, over all its incarnations."""

    def __init__(self, name: str, task: "Task", restart: Restart) -> None:
        self.name, self.task, self.restart = name, task, restart
        self.status: Status = "new"
        self.restarts = 0
        self.last_error = ""
        self.note = ""
        self.beat: float | None = None
        self.unready: float | None = None
        """Since when it is not at work."""
        self.scope: anyio.CancelScope | None = None
        self._interruptible: set[anyio.CancelScope] = set()

    @property
    def ended(self) -> bool:
        """It will not run again."""
        return self.status in ("ended", "failed")

    def born(self) -> None:
        """A new incarnation begins."""
        self.set("starting")
        self.beat = anyio.current_time()

    def set(self, status: Status, note: str = "") -> None:
        """Change status; the note goes with it."""
        self.status, self.note = status, note
        if status in ("ready", "ended"):
            self.unready = None
        elif self.unready is None:
            self.unready = anyio.current_time()

    def stalled(self, now: float) -> bool:
        """Whether it is running and has been silent for too long."""
        running = self.status in ("starting", "ready", "waiting", "stalled")
        return running and self.beat_age(now) > self.restart.stall_seconds

    def beat_age(self, now: float) -> float:
        """Seconds since the last sign of life; 0 before the first."""
        return 0.0 if self.beat is None else max(0.0, now - self.beat)

    def state(self, now: float) -> ActorState:
        """For outside."""
        return ActorState(
            name=self.name,
            status=self.status,
            restarts=self.restarts,
            last_error=self.last_error,
            beat_age=self.beat_age(now),
            note=self.note,
            critical=self.restart.critical,
            unready_seconds=0.0 if self.unready is None else max(0.0, now - self.unready),
        )

    @contextlib.contextmanager
    def interruptible(self, draining: anyio.Event) -> Generator[anyio.CancelScope]:
        """A scope that the beginning of a drain cancels."""
        with anyio.CancelScope() as scope:
            self._interruptible.add(scope)
            if draining.is_set():
                scope.cancel()
            try:
                yield scope
            finally:
                self._interruptible.discard(scope)

    def interrupt(self) -> None:
        """Draining begins."""
        for scope in tuple(self._interruptible):
            scope.cancel()


Task = Callable[["Lifecycle"], Awaitable[None]]


class Lifecycle:
    """One incarnation of a task: how it shows that it lives and learns that it should end."""

    def __init__(self, unit: Unit, draining: anyio.Event, on_ready: Callable[[], None]) -> None:
        self._unit, self._draining, self._on_ready = unit, draining, on_ready

    @property
    def name(self) -> str:
        """The task's name."""
        return self._unit.name

    @property
    def draining(self) -> anyio.Event:
        """Set when the process is to end: finish what is in hand and return."""
        return self._draining

    def ready(self) -> None:
        """Started, or at work again after `waiting`."""
        self.beat()
        if self._unit.status != "ready":
            self._unit.set("ready")
            self._on_ready()

    def waiting(self, reason: str) -> None:
        """Something outside is away; not a failure, and still a sign of life."""
        self.beat()
        self._unit.set("waiting", reason[:500])

    def beat(self) -> None:
        """A sign of life."""
        self._unit.beat = anyio.current_time()

    def interruptible(self) -> contextlib.AbstractContextManager[anyio.CancelScope]:
        """What runs inside is cancelled as soon as draining begins; at once if it has begun."""
        return self._unit.interruptible(self._draining)

    async def pause(self, seconds: float) -> bool:
        """Sleep; True if the full time passed, False as soon as draining begins."""
        with self.interruptible():
            await anyio.sleep(seconds)
        return not self._draining.is_set()
