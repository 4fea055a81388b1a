"""Leases: who may do what only one may, with an epoch that fences off whoever had it before.

A lease is a row, taken by one conditional update that raises the epoch; it runs out by the database's clock. Each write
transaction looks whether the epoch is still its own (`fenced`), on PostgreSQL with FOR KEY SHARE, which holds up a
taker until the transaction is over: what commits under an epoch commits before the next one begins.
"""

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from sqlalchemy import Connection, case, func, or_, select, text, update
from sqlalchemy.exc import DBAPIError

from actors.store.engine import insert_new, open_engine, outage, table_of
from actors.store.postgresql import end_silent_writer
from actors.store.tables import LeaseRow
from actors.system.errors import Deposed
from actors.system.leadership import Standing

T = TypeVar("T")
_THREADS = 4
_EPOCH_ZERO = 1_577_836_800
"""2020-01-01. An epoch is at least the seconds since then: engines remember the greatest that they saw, and a database
that was restored, or made anew, must not come back with smaller ones."""
_LOCK_MILLISECONDS = "1000"


class _Fence(msgspec.Struct, frozen=True):
    name: str
    epoch: int


class Leases:
    """The rows, in a store's database. Statements run beside the store's own: a renewal does not wait for a writer."""

    def __init__(self, url: str, password_file: str = "") -> None:
        """Nothing is opened yet."""
        # Connections of their own, and not in line with the store's writers: a renewal waits for none of them.
        self._engine = open_engine(url, password_file, _THREADS)
        sqlite = self._engine.dialect.name == "sqlite"
        self._writing = self._engine.execution_options(writing=True) if sqlite else self._engine
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._fence: ContextVar[_Fence | None] = ContextVar("fence", default=None)

    async def take(
        self, name: str, holder: str, seconds: float, *, about: str = "", force: bool = False, again: bool = True
    ) -> Standing:
        """Take `name` if it is free; how it stands then: taken if the holder is `holder` and the epoch is new.

        Args:
            holder: unique to one life of a process.
            seconds: that it lasts unless it is renewed.
            about: what others should know of the holder.
            force: take it from whoever has it.
            again: a holder may take it from itself, under a new epoch.

        Raises:
            Deposed: the caller works under another lease, which it has lost.
            StoreUnavailable: no answer; it may have been taken all the same.
        """
        return await self._run(_take, name, holder, seconds, about, force, again, self.check())

    async def renew(self, name: str, holder: str, epoch: int, seconds: float) -> bool:
        """Have it last for `seconds` from now; False if somebody else has it, or it was given back."""
        return await self._run(_renew, name, holder, epoch, seconds)

    async def give_back(self, name: str, epoch: int) -> None:
        """It is free from now on, if its epoch is still `epoch`."""
        await self._run(_give_back, name, epoch)

    async def look(self, name: str) -> Standing:
        """How it stands."""
        return await self._run(_standing, name)

    async def aclose(self) -> None:
        """Close the connections."""
        await anyio.to_thread.run_sync(self._engine.dispose, limiter=self._limiter)

    @contextlib.contextmanager
    def fenced(self, name: str, epoch: int) -> Generator[None]:
        """What is written to the store from in here, and from tasks that are started in here, is refused with `Deposed`
        once `name` has another epoch."""
        token = self._fence.set(_Fence(name, epoch))
        try:
            yield
        finally:
            self._fence.reset(token)

    def check(self) -> Callable[[Connection], None]:
        """To be called in a write transaction before anything else: raises `Deposed` behind the caller's fence."""
        fence = self._fence.get()
        return (lambda connection: None) if fence is None else (lambda connection: _check(connection, fence))

    async def _run(self, work: Callable[..., T], *args: object) -> T:
        def run() -> T:
            try:
                with self._writing.begin() as connection:
                    if connection.dialect.name == "postgresql":
                        # A taker must not wait for a holder that hangs, nor a holder for its own renewal.
                        connection.execute(select(func.set_config("lock_timeout", _LOCK_MILLISECONDS, True)))
                    return work(connection, *args)
            except DBAPIError as error:
                raise outage(error, self._engine.url) or error from error

        # Abandoned on cancellation: whoever waits has a deadline. A renewal or a taking that comes too late delays the
        # next holder, and harms nobody.
        return await anyio.to_thread.run_sync(run, limiter=self._limiter, abandon_on_cancel=True)


def _now(connection: Connection) -> float:
    """The database's clock, unix seconds."""
    if connection.dialect.name == "sqlite":
        return float(connection.scalar(text("SELECT (julianday('now') - 2440587.5) * 86400.0")) or 0.0)
    return float(connection.scalar(text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0)


def _take(
    connection: Connection, name: str, holder: str, seconds: float, about: str, force: bool, again: bool,
    check: Callable[[Connection], None],
) -> Standing:  # fmt: skip
    check(connection)
    row, found = LeaseRow, _standing(connection, name)
    if found.live and not force and not (again and found.holder == holder):
        return found
    if connection.dialect.name == "postgresql":
        end_silent_writer(connection)  # who led may hang with what the next statement waits for
    if not found.epoch:
        free = {"name": name, "holder": "", "about": "", "epoch": 0, "since": 0.0, "expires": 0.0}
        insert_new(connection, table_of(row), [free])
    now = _now(connection)
    least = int(now) - _EPOCH_ZERO
    free_now = [row.expires <= now, *([row.holder == holder] if again else []), *([row.name == name] if force else [])]
    connection.execute(
        update(row)
        .where(row.name == name, or_(*free_now))
        .values(
            holder=holder, about=about, since=now, expires=now + seconds,
            epoch=case((row.epoch >= least, row.epoch + 1), else_=least),
        )
    )  # fmt: skip
    after = _standing(connection, name)
    # Somebody may have been quicker between the look and the update; with `again` off, that may have been ourselves.
    return msgspec.structs.replace(after, taken=after.holder == holder and after.since == now)


def _renew(connection: Connection, name: str, holder: str, epoch: int, seconds: float) -> bool:
    row = LeaseRow
    held = (row.name == name, row.holder == holder, row.epoch == epoch, row.expires > 0)
    return connection.execute(update(row).where(*held).values(expires=_now(connection) + seconds)).rowcount == 1


def _give_back(connection: Connection, name: str, epoch: int) -> None:
    row = LeaseRow
    connection.execute(update(row).where(row.name == name, row.epoch == epoch).values(expires=0.0))


def _standing(connection: Connection, name: str) -> Standing:
    row = LeaseRow
    wanted = select(row.holder, row.about, row.epoch, row.since, row.expires).where(row.name == name)
    found = connection.execute(wanted).first()
    if found is None:
        return Standing()
    left = found.expires - _now(connection) if found.expires else 0.0
    return Standing(
        holder=found.holder, about=found.about, epoch=found.epoch, since=found.since, seconds_left=max(0.0, left)
    )


def _check(connection: Connection, fence: _Fence) -> None:
    row = LeaseRow
    wanted = select(row.epoch).where(row.name == fence.name)
    if connection.dialect.name == "postgresql":
        wanted = wanted.with_for_update(read=True, key_share=True)
    epoch = connection.scalar(wanted)
    if epoch != fence.epoch:
        raise Deposed(fence.name, fence.epoch, int(epoch or 0))
