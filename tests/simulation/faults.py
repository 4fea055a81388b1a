"""What goes wrong: how often, and a store and a disk that it goes wrong with."""

import contextlib
import errno
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from actors.messages import Message, files
from actors.store import Store
from actors.store.errors import StoreUnavailable
from actors.system.outgoing import Outgoing

FULL = 3600.0
"""Seconds that a full disk lasts at most until somebody clears it."""

_FAILED, _UNHEARD = 0.003, 0.001
"""Share of the commits that write nothing, and of those whose answer is lost."""


class DaemonDied(Exception):
    """The daemon dies here."""


class Faults:
    """How often what goes wrong; all of it from one seed."""

    def __init__(self, rng: random.Random, *, on: bool) -> None:
        self._rng, self.on = rng, on
        self.met: dict[str, int] = {}
        """How often what happened."""
        self.full = False
        """Whether the disk is."""

    def strikes(self, what: str, chance: float) -> bool:
        if not self.on or self._rng.random() >= chance:
            return False
        self.count(what)
        return True

    def count(self, what: str) -> None:
        self.met[what] = self.met.get(what, 0) + 1

    def delay(self) -> float:
        """Seconds that a record is on its way."""
        if not self.on:
            return 0.0
        return 20.0 * self._rng.random() if self.strikes("held_up", 0.02) else self._rng.expovariate(4.0)


class SimulatedStore(Store):
    """The real one, whose disk may be full and whose commits fail once in a while: before anything was written, or with
    all of it written and the answer lost."""

    def __init__(self, url: str, *, clock: Callable[[], float], faults: Faults) -> None:
        super().__init__(url, clock=clock)
        self._faults, self._writes = faults, self.change
        self.change = self._unless_full

    async def _unless_full(self, *arguments: Any, **options: Any) -> Any:
        if self._faults.full:
            raise StoreUnavailable("database or disk is full")
        return await self._writes(*arguments, **options)

    async def commit(
        self, actor: str, inputs: Sequence[str], records: Sequence[Message], outputs: Sequence[Outgoing]
    ) -> Sequence[Outgoing] | None:
        if self._faults.strikes("commit_failed", _FAILED):
            raise StoreUnavailable("disk I/O error")
        done = await super().commit(actor, inputs, records, outputs)
        if self._faults.strikes("commit_unheard", _UNHEARD):
            raise StoreUnavailable("server closed the connection unexpectedly")
        return done


@contextlib.contextmanager
def full_for_files(faults: Faults) -> Iterator[None]:
    """Meanwhile what product code writes as a whole is not written while the disk is full."""
    before = files.writing_whole

    @contextlib.contextmanager
    def writing_whole(path: Path, **options: Any) -> Iterator[IO[bytes]]:
        if faults.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        with before(path, **options) as file:
            yield file

    files.writing_whole = writing_whole
    try:
        yield
    finally:
        files.writing_whole = before
