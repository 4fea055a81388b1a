"""What is kept for how long, and how much room all of it may take, looked after every hour by the daemon.

    by age     feedback, calls, trajectories, the judge's words, orders: some hundred rows a transaction, then a pause
    by room    while the state directory holds more than it may: the oldest trajectories and calls, then weights

Weights go for their number with whoever writes them here (`keep.versions`). Never taken: see `actors.store.retention`;
weights that serve, served last, are pinned, on trial or among the newest two; the audit trail.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import structlog
from prometheus_client.core import Metric

from actors.store import Store
from actors.store import retention as old
from adapters.weights.disk import prune
from daemon.collectors.figures import counter, gauge
from daemon.settings.tables import Keep

log = structlog.get_logger(__name__)
_HOUR, _DAY = 3600.0, 86_400.0
_JUDGEMENTS_DAYS = 90.0
"""What has not come again in a season will not."""
_BATCHES_DAYS = 365.0
"""Orders that no version came of: a year tells who asks why."""
_MOST = 100_000
"""Rows of one kind in one hour: what is left goes in the next."""
_ROUND = 10_000
"""Rows that are looked for at a time."""
_PAUSE = 0.05
"""Seconds between two transactions, for those that write to the store meanwhile."""
_NEWEST = 2
_AGES = (180.0, 90.0, 30.0, 7.0, 1.0)
"""Days: of what is taken for its room, all that is older goes first. What is younger than the last one stays."""


class Retention:
    """Takes out what is too old, or too much."""

    def __init__(
        self, keep: Keep, *, store: Store, state: Path, database: Path | None, clock: Callable[[], float],
        uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        pause: float = _PAUSE,
    ) -> None:  # fmt: skip
        """`database` is SQLite's file, None for a database elsewhere; `uptime` a clock that nobody can set and that
        goes on while the machine sleeps."""
        self._keep, self._store, self._state = keep, store, state
        self._database, self._clock, self._uptime, self._pause = database, clock, uptime, pause
        self._seen = (clock(), uptime())
        self._jumped: float | None = None
        """Uptime when the clock was first seen to have jumped ahead."""
        self.rows = Counter[str]()
        """Taken out, by kind."""
        self.usage: dict[str, int] = {}
        """Bytes by what is in the state directory, as last seen; "database": what holds something, "database_free":
        pages that will be used again."""
        self.limit = int(keep.state_gb * (1 << 30))
        self._going: Callable[[], bool] = lambda: True

    @property
    def total(self) -> int:
        """Bytes in use."""
        return sum(size for kind, size in self.usage.items() if kind != "database_free")

    async def round(self, going: Callable[[], bool] = lambda: True) -> None:
        """Everything that is due. `going` is asked between two transactions; it ends early when that is False."""
        self._going = going
        now, runs = self._now(), self._keep.runs_days
        kept = await self._store.ask(old.protected)
        days: dict[old.Kind, float] = {
            "trajectories": runs, "feedback": runs, "exchanges": self._keep.calls_days,
            "judgements": _JUDGEMENTS_DAYS, "batches": _BATCHES_DAYS,
        }  # fmt: skip
        for kind, most in days.items():
            if most:
                await self._due(kind, now - most * _DAY, kept if kind == "trajectories" else ())
        await self._measure()
        if self._over():
            await self._shed(now, kept)
        if self.rows:
            log.info("retention", removed=dict(self.rows), in_use=self.total)

    def _now(self) -> float:
        """The time, unless the clock has jumped ahead: what is deleted on its word does not come back when it is set
        right. What it says then counts once it has stood for a day."""
        now, up = self._clock(), self._uptime()
        expected = self._seen[0] + up - self._seen[1]
        jumped = now - expected >= _HOUR
        if jumped and self._jumped is None:
            self._jumped = up
            log.error(
                "clock_jumped", ahead_seconds=now - expected, remedy="set the clock right; nothing is deleted by it"
            )
        if jumped and self._jumped is not None and up - self._jumped < _DAY:
            return expected
        self._seen, self._jumped = (now, up), None
        return now

    def _over(self) -> bool:
        return 0 < self.limit < self.total and self._going()

    async def _shed(self, now: float, kept: set[str]) -> None:
        """Take out what may go until no more is kept than may be. Runs in a database elsewhere take no room here, and
        stay."""
        for days in _AGES if self._database is not None else ():
            before, gone = now - days * _DAY, old.PAGE
            while gone and self._over():
                gone = await self._due("trajectories", before, kept, old.PAGE)
                await self._due("exchanges", before)
                await self._measure()
        versions = self._state / "versions"
        spared = await self._store.ask(old.on_trial) | await self._store.ask(old.served_last, _NEWEST)
        for keep in reversed(range(_NEWEST, len(list(versions.glob("v*"))))):
            if not self._over():
                return
            await self._store.confirm_lead()
            self.rows["versions"] += len(await anyio.to_thread.run_sync(prune, versions, keep, spared))
            await self._measure()
        if self._over():
            log.warning("state_over_limit", in_use=self.total, limit=self.limit, kinds=self.usage)

    async def _due(self, kind: old.Kind, before: float, kept: Collection[str] = (), most: int = _MOST) -> int:
        """Take out what is due; how many rows. Looks in transactions that only read, and writes in short ones: other
        writers wait for none of the looking."""
        gone = 0
        while gone < most:
            wanted = min(_ROUND, most - gone)
            due = await self._store.ask(old.due, kind, before, wanted, kept)
            for first in range(0, len(due), old.PAGE):
                if not self._going():
                    return gone
                if rows := await self._store.change(old.drop, kind, due[first : first + old.PAGE], before):
                    self.rows[kind] += rows
                await anyio.sleep(self._pause)
            gone += len(due)
            if len(due) < wanted:
                break
        return gone

    async def _measure(self) -> None:
        used, taken = await self._store.ask(old.used_bytes)
        self.usage = await anyio.to_thread.run_sync(self._measured, used, taken)

    def _measured(self, used: int, taken: int) -> dict[str, int]:
        found = {path.name: _size(path.resolve()) for path in self._state.iterdir()}
        kinds = {name: size for name, size in found.items() if not name.startswith("evolved.db")}
        if self._database is None:
            return kinds
        log_file = self._database.with_name(self._database.name + "-wal")
        return kinds | {"database": used + _size(log_file), "database_free": taken - used}


def retention_figures(retention: Retention) -> Iterator[Metric]:
    yield counter("evolved_retention_removed", "Rows and versions taken out for age or room.", retention.rows, "kind")
    yield gauge("evolved_state_bytes", "Room that state_dir takes, by kind.", retention.usage, "kind")
    yield gauge("evolved_state_limit_bytes", "Room that it may take; 0: any.", retention.limit)


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a directory; what goes meanwhile counts as nothing."""
    try:
        if path.is_dir() and not path.is_symlink():
            return sum(_size(one) for one in path.iterdir())
        return path.lstat().st_size
    except OSError:
        return 0
