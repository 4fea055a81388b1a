"""What is kept for how long, looked after every hour by the daemon.

Feedback, calls, trajectories, the judge's words and orders go by age: some hundred rows a transaction, then a pause.
Weights go for their number with whoever writes them here (`keep.versions`). Never taken: see `actors.store.retention`;
the audit trail.
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
from daemon.figures import counter, gauge
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


class Retention:
    """Takes out what is too old."""

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
        self._going: Callable[[], bool] = lambda: True

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
        used, taken = await self._store.ask(old.used_bytes)
        self.usage = await anyio.to_thread.run_sync(self._measured, used, taken)
        if self.rows:
            log.info("retention", removed=dict(self.rows), in_use=self.usage)

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

    async def _due(self, kind: old.Kind, before: float, kept: Collection[str]) -> None:
        """Take out what is due. Looks in transactions that only read, and writes in short ones: other
        writers wait for none of the looking."""
        gone = 0
        while gone < _MOST:
            due = await self._store.ask(old.due, kind, before, _ROUND, kept)
            for first in range(0, len(due), old.PAGE):
                if not self._going():
                    return
                if rows := await self._store.change(old.drop, kind, due[first : first + old.PAGE], before):
                    self.rows[kind] += rows
                await anyio.sleep(self._pause)
            gone += len(due)
            if len(due) < _ROUND:
                return

    def _measured(self, used: int, taken: int) -> dict[str, int]:
        found = {path.name: _size(path.resolve()) for path in self._state.iterdir()}
        kinds = {name: size for name, size in found.items() if not name.startswith("evolved.db")}
        if self._database is None:
            return kinds
        log_file = self._database.with_name(self._database.name + "-wal")
        return kinds | {"database": used + _size(log_file), "database_free": taken - used}


def retention_figures(retention: Retention) -> Iterator[Metric]:
    yield counter("evolved_retention_removed", "Rows taken out for their age.", retention.rows, "kind")
    yield gauge("evolved_state_bytes", "Room that state_dir takes, by kind.", retention.usage, "kind")


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a directory; what goes meanwhile counts as nothing."""
    try:
        if path.is_dir() and not path.is_symlink():
            return sum(_size(one) for one in path.iterdir())
        return path.lstat().st_size
    except OSError:
        return 0
