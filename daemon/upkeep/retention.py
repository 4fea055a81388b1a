"""What is kept for how long, and how much room all of it may take, looked after every hour by the daemon.

    by age     feedback, calls, trajectories, the judge's words, orders: some hundred rows a transaction, then a pause
    by room    while the state directory holds more than it may: the oldest trajectories and calls, then weights

Weights go for their number with whoever writes them here (`keep.versions`). Never taken: see `actors.store.retention`;
weights that serve, served last, are pinned, on trial or among the newest two; the audit trail.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog
from prometheus_client.core import Metric

from actors.store import Store
from actors.store import retention as old
from actors.store.retention import Removed
from adapters.weights.disk import prune
from daemon.collectors.figures import counter, gauge
from daemon.settings.tables import Keep

log = structlog.get_logger(__name__)
_DAY = 86_400.0
_JUDGEMENTS_DAYS = 90.0
"""What has not come again in a season will not."""
_BATCHES_DAYS = 365.0
"""Orders that no version came of: a year tells who asks why."""
_MOST = 100_000
"""Rows of one kind in one hour: what is left goes in the next."""
_ROUND = 10_000
"""Rows that are looked for at a time."""
_PAUSE = 0.05
"""Seconds between two, for those that write to the store meanwhile."""
_NEWEST = 2
_AGES = (180.0, 90.0, 30.0, 7.0, 1.0)
"""Days: of what is taken for its room, all that is older goes first. What is younger than the last one stays."""


class Usage(msgspec.Struct, frozen=True):
    """Room that is taken."""

    kinds: dict[str, int]
    """Bytes by what is in the state directory; "database": what holds something, "database_free": pages that will be
    used again."""

    @property
    def total(self) -> int:
        return sum(size for kind, size in self.kinds.items() if kind != "database_free")


_JUMP_SECONDS = 3600.0
"""A clock that is ahead of itself by so much since the last round has been set, or is broken."""
_BELIEVED_SECONDS = 86_400.0


def _uptime() -> float:
    """Goes on while the machine sleeps, unlike the monotonic clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Retention:
    """Takes out what is too old, or too much."""

    def __init__(
        self, keep: Keep, *, store: Store, state: Path, database: Path | None,
        clock: Callable[[], float], uptime: Callable[[], float] = _uptime, pause: float = _PAUSE,
    ) -> None:  # fmt: skip
        """
        Args:
            database: SQLite's file; None for a database elsewhere.
            clock: unix seconds.
            uptime: seconds since some moment, which nobody can set.
            pause: seconds between two transactions.
        """
        self._keep, self._store, self._state = keep, store, state
        self._database, self._clock, self._uptime, self._pause = database, clock, uptime, pause
        self._seen = (clock(), uptime())
        self._jumped = -1.0
        """Uptime when the clock was first seen to have jumped ahead; negative if it has not."""
        self.rows, self.bytes = Counter[str](), Counter[str]()
        """Taken out, by kind."""
        self.usage = Usage({})
        """As last seen."""
        self.limit = int(keep.state_gb * (1 << 30))
        self._beat: Callable[[], None] = lambda: None
        self._draining: Callable[[], bool] = lambda: False

    async def round(
        self, draining: Callable[[], bool] = lambda: False, beat: Callable[[], None] = lambda: None
    ) -> Usage:
        """Everything that is due; ends early, between two transactions, when `draining`."""
        self._beat, self._draining = beat, draining
        now, runs, calls = self._now(), self._keep.runs_days, self._keep.calls_days
        kept = await self._store.ask(old.protected)
        if runs:
            await self._due("trajectories", now - runs * _DAY, kept)
            await self._due("feedback", now - runs * _DAY)
        if calls:
            await self._due("exchanges", now - calls * _DAY)
        await self._due("judgements", now - _JUDGEMENTS_DAYS * _DAY)
        await self._due("batches", now - _BATCHES_DAYS * _DAY)
        self.usage = await self._measure()
        if self.limit and self.usage.total > self.limit:
            await self._shed(kept)
        if self.rows:
            log.info("retention", removed=dict(self.rows), bytes=dict(self.bytes), in_use=self.usage.total)
        return self.usage

    def _now(self) -> float:
        """The time, unless the clock has jumped ahead: what is deleted on its word does not come back when it is set
        right. What it says then counts once it has stood for a day."""
        now, up = self._clock(), self._uptime()
        expected = self._seen[0] + up - self._seen[1]
        if now - expected < _JUMP_SECONDS:
            self._seen, self._jumped = (now, up), -1.0
            return now
        if self._jumped < 0:
            self._jumped = up
            log.error(
                "clock_jumped", ahead_seconds=now - expected, remedy="set the clock right; nothing is deleted by it"
            )
        if up - self._jumped >= _BELIEVED_SECONDS:
            self._seen, self._jumped = (now, up), -1.0
            return now
        return expected

    async def _shed(self, kept: set[str]) -> None:
        """Take out what may go until no more is kept than may be. Runs in a database elsewhere take no room here, and
        stay."""
        now = self._now()
        for days in _AGES if self._database is not None else ():
            before, gone = now - days * _DAY, old.PAGE
            while gone and self.usage.total > self.limit and not self._draining():
                gone = await self._due("trajectories", before, kept, old.PAGE)
                await self._due("exchanges", before)
                self.usage = await self._measure()
        versions = self._state / "versions"
        spared = await self._store.ask(old.on_trial) | await self._store.ask(old.served_last, _NEWEST)
        for keep in reversed(range(_NEWEST, len(list(versions.glob("v*"))))):
            if self.usage.total <= self.limit or self._draining():
                break
            size = self.usage.kinds["versions"]
            await self._store.confirm_lead()
            gone = await anyio.to_thread.run_sync(prune, versions, keep, spared)
            self.usage = await self._measure()
            self._note("versions", Removed(len(gone), size - self.usage.kinds["versions"]))
        if self.usage.total > self.limit:
            log.warning("state_over_limit", in_use=self.usage.total, limit=self.limit, kinds=self.usage.kinds)

    async def _due(self, kind: old.Kind, before: float, kept: Collection[str] = (), most: int = _MOST) -> int:
        """Take out what is due; how many rows. Looks in transactions that only read, and writes in short ones: other
        writers wait for none of the looking."""
        gone = 0
        while gone < most:
            wanted = min(_ROUND, most - gone)
            due = await self._store.ask(old.due, kind, before, wanted, kept)
            for first in range(0, len(due), old.PAGE):
                if self._draining():
                    return gone
                done = await self._store.change(old.drop, kind, due[first : first + old.PAGE], before)
                self._note(kind, done)
                self._beat()
                await anyio.sleep(self._pause)
            gone += len(due)
            if len(due) < wanted:
                break
        return gone

    def _note(self, kind: str, done: Removed) -> None:
        if done.rows:
            self.rows[kind] += done.rows
            self.bytes[kind] += done.bytes

    async def _measure(self) -> Usage:
        used, taken = await self._store.ask(old.used_bytes)
        return await anyio.to_thread.run_sync(self._measured, used, taken)

    def _measured(self, used: int, taken: int) -> Usage:
        own = "evolved.db"
        kinds = {path.name: _size(path) for path in self._state.iterdir() if not path.name.startswith(own)}
        if self._database is not None:
            log_file = self._database.with_name(self._database.name + "-wal")
            kinds["database"], kinds["database_free"] = used + _size(log_file), taken - used
        return Usage(kinds)


def retention_figures(retention: Retention) -> Iterator[Metric]:
    yield counter("evolved_retention_removed", "Rows and versions taken out for age or room.", retention.rows, "kind")
    yield counter("evolved_retention_removed_bytes", "Their bytes.", retention.bytes, "kind")
    yield gauge("evolved_state_bytes", "Room that state_dir takes, by kind.", retention.usage.kinds, "kind")
    yield gauge("evolved_state_limit_bytes", "Room that it may take; 0: any.", retention.limit)


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a directory; what goes meanwhile counts as nothing."""
    total = 0
    try:
        if not path.is_dir():
            return path.stat().st_size
        for root, _, names in os.walk(path):
            for name in names:
                try:
                    total += os.lstat(os.path.join(root, name)).st_size
                except OSError:
                    continue
    except OSError:
        return total
    return total
