"""Swap intents: before an engine is touched, the store says who is about to, for how long, and to what end.

The swap's program outlives its daemon and may run on another machine, and the daemon that leads next must not start
another one on top of it. So each swap has a lease of its own (`actors.store.leases`), taken in a transaction that looks
whether this daemon leads, and given back when its outcome is known; its epoch rises with every swap, and engines with
our plug-in refuse a smaller one.
"""

import contextlib
import os
import socket
from pathlib import Path
from uuid import uuid4

import anyio.to_thread
import msgspec

from actors.messages.files import write_whole
from actors.ports.errors import EngineUnavailable
from actors.store import Store
from actors.store.leases import give_back, standing, take


class Intent(msgspec.Struct, frozen=True):
    """A swap that somebody was about to make."""

    epoch: int
    """0: nobody ever was."""
    version: int
    directory: str
    """Which directory its files are in (`SwapIntents.directory`)."""
    holder: str
    seconds_left: float
    """That its program may still be at it; 0: it is over."""


class _About(msgspec.Struct):
    version: int = -1
    directory: str = ""


class SwapIntents:
    """Those of one daemon's engines."""

    def __init__(self, store: Store, directory: Path, holder: str = "") -> None:
        self._store, self._path = store, directory
        self._holder = holder or f"{socket.gethostname()}-{os.getpid()}"
        self._directory = ""

    async def begin(self, engine: str, version: int, seconds: float) -> int:
        """Say that `engine` is about to be swapped; the epoch.

        Raises:
            EngineUnavailable: somebody else is at it; says who, and for how long at most.
            StoreUnavailable: nothing may be done then.
        """
        about = msgspec.json.encode(_About(version, await self.directory())).decode()
        found = await self._store.change(take, _name(engine), self._holder, seconds, about)
        if not found.taken:
            raise under_way(engine, found.holder, found.seconds_left)
        return found.epoch

    async def end(self, engine: str, epoch: int) -> None:
        """What came of it is known."""
        await self._store.change(give_back, _name(engine), epoch)

    async def look(self, engine: str) -> Intent:
        """The last one."""
        found = await self._store.ask(standing, _name(engine))
        about = msgspec.json.decode(found.about or "{}", type=_About)
        return Intent(found.epoch, about.version, about.directory, found.holder, found.seconds_left)

    async def directory(self) -> str:
        """An id of the directory itself: daemons that see the same one see each other's programs and locks."""
        if not self._directory:
            self._directory = await anyio.to_thread.run_sync(_identity, self._path)
        return self._directory


def under_way(engine: str, holder: str, seconds: float) -> EngineUnavailable:
    """What to say of an engine that somebody else is swapping."""
    return EngineUnavailable(f"{engine}: a swap by {holder} may be under way for {seconds:.0f} s more")


def _name(engine: str) -> str:
    return f"swap:{engine}"


def _identity(path: Path) -> str:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = path / "identity"
    with contextlib.suppress(FileExistsError):  # of two that make it at once the first one's stays
        write_whole(file, uuid4().hex.encode(), sync="none", exclusive=True)
    return file.read_text().strip()
