"""A supervised task's `Lifecycle`: how it shows that it lives, and learns that it should end."""

import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Literal

import anyio
import msgspec

Status = Literal["starting", "ready", "waiting", "restarting", "ended"]
"""`waiting`: alive, for something outside to come back. `ended`: it came to its end, or was given up."""
_AT_WORK = ("ready", "ended")
STALL_SECONDS = 120.0


class ActorState(msgspec.Struct, frozen=True, kw_only=True):
    """A task at one moment."""

    name: str
    status: Status
    restarts: int = 0
    last_error: str = ""
    beat_age: float = 0.0
    """Seconds since the last sign of life."""
    note: str = ""
    """What it waits for, if it waits."""
    critical: bool
    unready_seconds: float = 0.0
    """How long it has not been at work, over all its restarts."""


class Lifecycle:
    """One task's, over all its restarts."""

    def __init__(
        self, name: str, on_ready: Callable[[], None] = lambda: None, *, critical: bool = True,
        stall_seconds: float = STALL_SECONDS, max_restarts: int = 10,
    ) -> None:  # fmt: skip
        """See `Supervisor.add`; `on_ready` is called whenever it becomes ready."""
        self.name, self._on_ready = name, on_ready
        self.critical, self.stall_seconds, self.max_restarts = critical, stall_seconds, max_restarts
        self.status: Status = "starting"
        self.note = self.last_error = ""
        self.restarts = 0
        self.draining = anyio.Event()
        """Set when the process is to end: finish what is in hand and return."""
        self.scope: anyio.CancelScope | None = None
        """Of the task while it runs."""
        self._beat = self._unready = anyio.current_time()
        self._interruptible: set[anyio.CancelScope] = set()

    def ready(self) -> None:
        """Started, or at work again after `waiting`."""
        self.beat()
        if self.status != "ready":
            self.set("ready")
            self._on_ready()

    def waiting(self, reason: str) -> None:
        """Something outside is away; not a failure, and still a sign of life."""
        self.beat()
        self.set("waiting", reason[:500])

    def beat(self) -> None:
        """A sign of life."""
        self._beat = anyio.current_time()

    @contextlib.contextmanager
    def interruptible(self) -> Generator[None]:
        """What runs inside is cancelled as soon as draining begins; at once if it has begun."""
        with anyio.CancelScope() as scope:
            self._interruptible.add(scope)
            if self.draining.is_set():
                scope.cancel()
            try:
                yield
            finally:
                self._interruptible.discard(scope)

    async def pause(self, seconds: float) -> bool:
        """Sleep; True if the full time passed, False as soon as draining begins."""
        with self.interruptible():
            await anyio.sleep(seconds)
        return not self.draining.is_set()

    def drain(self) -> None:
        """Draining begins."""
        self.draining.set()
        for scope in tuple(self._interruptible):
            scope.cancel()

    def set(self, status: Status, note: str = "") -> None:
        """Change status; the note goes with it."""
        if status not in _AT_WORK and self.status in _AT_WORK:
            self._unready = anyio.current_time()
        self.status, self.note = status, note

    @property
    def beat_age(self) -> float:
        """Seconds since the last sign of life."""
        return max(0.0, anyio.current_time() - self._beat)

    @property
    def unready_seconds(self) -> float:
        """Seconds that it has not been at work."""
        return 0.0 if self.status in _AT_WORK else max(0.0, anyio.current_time() - self._unready)


Task = Callable[[Lifecycle], Awaitable[None]]
