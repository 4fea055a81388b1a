"""Leadership: of several daemons one leads, and what must be done by one alone is done there.

    take the lease -> [singletons run] -> renew in time, or stop them before it can run out -> take it again

The leader renews three times in the lease's time; if it cannot, its singletons are cancelled by their own clock before
anybody else could lead. Whoever was stopped and goes on writes nothing (`LeaseKeeper`, `actors.store.leases`).
"""

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, cast

import anyio
import msgspec
import structlog

from actors.system.errors import DependencyUnavailable, Deposed
from actors.system.lifecycle import Lifecycle

_log = structlog.get_logger(__name__)
LEADER = "leader"
"""Name of the lease."""
_RENEWALS = 3
"""In the time that a lease lasts."""
_MARGIN = 1 / 6
"""Of that time: so long before it could run out the work under it is stopped."""
_LOOK = 0.5
"""Seconds between two looks of a daemon that stands by."""
_LEAVE = 2.0
"""Seconds that what is cancelled has to be gone before the lease is given back, at the very end."""


Task = Callable[[Lifecycle], Awaitable[None]]
Meanwhile = Callable[[], Coroutine[Any, Any, None]]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it stands."""

    holder: str = ""
    about: str = ""
    """What the holder says of itself."""
    epoch: int = 0
    """Rises with each holder; 0: nobody ever had it."""
    since: float = 0.0
    """Unix seconds of the database's clock, when the epoch began."""
    seconds_left: float = 0.0
    """Until it runs out; 0: it is free."""
    taken: bool = False
    """By this very call."""

    @property
    def live(self) -> bool:
        """Somebody has it."""
        return self.seconds_left > 0


class LeaseKeeper(Protocol):
    """Keeps leases for all daemons; `actors.store.leases.Leases`. Every method may raise `DependencyUnavailable`."""

    async def take(self, name: str, holder: str, seconds: float, *, about: str = ..., force: bool = ...) -> Standing:
        """Take it if it is free, or is the caller's, or by force; how it stands then."""
        ...

    async def renew(self, name: str, holder: str, epoch: int, seconds: float) -> bool:
        """Have it last longer; False if it is somebody else's."""
        ...

    async def give_back(self, name: str, epoch: int) -> None:
        """It is free."""
        ...

    def fenced(self, name: str, epoch: int) -> contextlib.AbstractContextManager[None]:
        """Inside, writes raise `Deposed` once there is another epoch."""
        ...


class _Term:
    """The time from taking the lease to losing it."""

    def __init__(self, epoch: int, deadline: float) -> None:
        self.epoch, self.deadline = epoch, deadline
        self._scopes: set[anyio.CancelScope] = set()
        self._over = False

    @property
    def on(self) -> bool:
        return not self._over and anyio.current_time() < self.deadline

    @contextlib.contextmanager
    def scope(self) -> Generator[None]:
        with anyio.CancelScope(deadline=self.deadline) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def extend(self, deadline: float) -> None:
        self.deadline = deadline
        for scope in self._scopes:
            scope.deadline = deadline

    def end(self) -> None:
        self._over = True
        for scope in tuple(self._scopes):
            scope.cancel()


class Leadership:
    """One daemon's part in it. `run` is a task for the supervisor; `holds` makes others wait for it."""

    def __init__(
        self,
        leases: LeaseKeeper,
        *,
        holder: str,
        about: str = "",
        seconds: float = 3.0,
        sole: bool = False,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            holder: this daemon, unique to its life.
            about: where it can be reached.
            seconds: the lease's time.
            sole: nobody else can be there (an SQLite database that this process has locked): whoever has the lease is
                dead, and it is taken at once.
            on_taken: called before the first task runs under a new epoch.
        """
        self._leases, self._holder, self._about, self._seconds = leases, holder, about, seconds
        self._sole, self._on_taken = sole, on_taken
        self._term: _Term | None = None
        self._working = 0
        self._news = anyio.Event()
        self.standing = Standing()
        """The lease, as of the last look."""
        self.terms = 0
        """How often this daemon came to lead."""
        self.lost = 0
        """How often it lost the lease against its will."""

    @property
    def leading(self) -> bool:
        """Whether the singletons run here."""
        return self._term is not None and self._term.on

    @property
    def epoch(self) -> int:
        """Of the term that is on, 0 if this daemon stands by."""
        return self._term.epoch if self._term is not None and self._term.on else 0

    def holds(self, task: Task, meanwhile: Meanwhile | None = None) -> Task:
        """`task`, which runs only under the lease: it is started when the lease is taken, cancelled when it is lost."""

        async def run(lifecycle: Lifecycle) -> None:
            while (term := await self._granted(lifecycle, meanwhile)) is not None:
                if await self._under(term, task, lifecycle):
                    return

        return run

    async def run(self, lifecycle: Lifecycle) -> None:
        """Take the lease whenever it is free, keep it until draining, give it back."""
        while not lifecycle.draining.is_set():
            # Nobody works under two epochs: those of the last term must be gone first.
            await self._gone()
            asked = anyio.current_time()
            try:
                with anyio.fail_after(self._seconds):
                    self.standing = await self._leases.take(
                        LEADER, self._holder, self._seconds, about=self._about, force=self._sole
                    )
            except (DependencyUnavailable, TimeoutError) as error:
                lifecycle.waiting(f"{type(error).__name__}: {error}")
                await lifecycle.pause(_LOOK)
                continue
            if self.standing.taken:
                await self._lead(_Term(self.standing.epoch, self._deadline(asked)), lifecycle)
            else:
                lifecycle.standby(f"{self.standing.holder} leads")
                self._tell()
                await lifecycle.pause(min(_LOOK, self.standing.seconds_left + 0.02))

    async def _lead(self, term: _Term, lifecycle: Lifecycle) -> None:
        self.terms += 1
        _log.info("leading", epoch=term.epoch, holder=self._holder)
        self._on_taken()
        self._term = term
        lifecycle.ready()
        self._tell()
        why = "it was not renewed in time"
        try:
            while term.on:
                if lifecycle.draining.is_set() and not self._working:
                    why = ""
                    return
                kept = await self._renew(term, lifecycle)
                if kept is False:
                    why = "somebody else has it"
                    return
                # Sooner when the last task has left, or when a draining begins.
                with anyio.move_on_at(min(term.deadline, anyio.current_time() + self._seconds / _RENEWALS)):
                    await self._stir(lifecycle)
        except anyio.get_cancelled_exc_class():
            why = ""
            raise
        finally:
            term.end()
            self._term = None
            if why:
                self.lost += 1
                self.standing = Standing()
                _log.error("lease_lost", epoch=term.epoch, reason=why)
            with anyio.move_on_after(_LEAVE, shield=True), contextlib.suppress(DependencyUnavailable):
                await self._gone()
                await self._leases.give_back(LEADER, term.epoch)

    async def _renew(self, term: _Term, lifecycle: Lifecycle) -> bool | None:
        """None: no answer."""
        asked = anyio.current_time()
        try:
            with anyio.fail_after(max(0.0, term.deadline - asked)):
                kept = await self._leases.renew(LEADER, self._holder, term.epoch, self._seconds)
        except (DependencyUnavailable, TimeoutError) as error:
            lifecycle.waiting(f"{type(error).__name__}: {error}")
            return None
        if kept:
            term.extend(self._deadline(asked))
            lifecycle.ready()
        return kept

    def _deadline(self, asked: float) -> float:
        """When what runs under a lease that was asked for then must stop: the database counts from later on."""
        return asked + self._seconds * (1 - _MARGIN)

    async def _stir(self, lifecycle: Lifecycle) -> None:
        """Wait until the last task has left a daemon that drains, or the term was ended."""
        if not lifecycle.draining.is_set():
            news = self._news
            async with anyio.create_task_group() as group:

                async def wait(event: anyio.Event) -> None:
                    await event.wait()
                    group.cancel_scope.cancel()

                group.start_soon(wait, news)
                group.start_soon(wait, lifecycle.draining)
        elif self._working:  # else the last one left during the renewal: there is no news to come
            await self._news.wait()

    async def _gone(self) -> None:
        """Wait until nothing works under a lease of this daemon."""
        while self._working:
            await self._news.wait()

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _granted(self, lifecycle: Lifecycle, meanwhile: Meanwhile | None) -> _Term | None:
        """The term, as soon as there is one; None if draining begins first."""
        async with anyio.create_task_group() as group:
            if meanwhile is not None and not self.leading:
                group.start_soon(meanwhile)
            while not lifecycle.draining.is_set():
                if self._term is not None and self._term.on:
                    group.cancel_scope.cancel()
                    return self._term
                if self.standing.live:
                    lifecycle.standby(f"{self.standing.holder} leads")
                else:
                    lifecycle.waiting("the lease")
                news = self._news
                with lifecycle.interruptible(), anyio.move_on_after(1.0):
                    await news.wait()
            group.cancel_scope.cancel()
        return None

    async def _under(self, term: _Term, task: Task, lifecycle: Lifecycle) -> bool:
        """Whether `task` came to its own end."""
        self._working += 1
        try:
            with term.scope(), self._leases.fenced(LEADER, term.epoch):
                await task(lifecycle)
                return True
        except Exception as error:
            if not _deposed(error):
                raise
            _log.error("deposed", task=lifecycle.name, epoch=term.epoch, reason=str(error))
            term.end()
        finally:
            self._working -= 1
            self._tell()
        return False


def _deposed(error: BaseException) -> bool:
    """Whether `Deposed` is at the bottom of it."""
    if isinstance(error, BaseExceptionGroup):
        return any(_deposed(member) for member in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, Deposed)


__all__ = ["LEADER", "Leadership", "LeaseKeeper", "Standing"]
