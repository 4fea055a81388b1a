"""Swaps for the swapper and the gatekeeper: behind their port stands the program of `adapters.engines.swap`.

An engine that serves users is swapped by a program that outlives the daemon and always resumes, and may run on another
machine: the daemon that leads next must not start another one on top of it. So an intent is written first, a lease of
the engine's own (`actors.store.leases`): who, to which version, for how long. It is taken in a transaction that looks
whether this daemon leads, and given back when its outcome is known; its epoch rises with every swap, and engines with
our plug-in refuse a smaller one. The shadow engine has no users: the same steps run in this process.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.ports.errors import EngineUnavailable, SwapFailed
from actors.ports.store import SwapReport
from actors.store import Store
from actors.store.leases import Standing, give_back, standing, take
from adapters.engines.swap import KEY_VARIABLE, collect, perform, run_swap
from adapters.engines.swap_files import SwapFiles, SwapJob, SwapOutcome
from adapters.engines.vllm import VllmEngine
from adapters.weights import WeightSource

_log = structlog.get_logger(__name__)
_GRACE = 30.0
"""Seconds that an intent lasts longer than its program: for the last requests of one that is cut off."""


class Swaps:
    """A `SwapRunner` for the daemon's engines."""

    def __init__(
        self, directory: Path, engines: Mapping[str, VllmEngine], *, inline: frozenset[str], weights: WeightSource,
        store: Store, holder: str = "this daemon", seconds: float = 180.0, epoch: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        """`directory` is for the program's files, which may take so many `seconds` in all; engines `inline` have no
        users, and are loaded under the lead's `epoch`; `holder` is this daemon's name in intents."""
        self._directory, self._engines, self._inline, self._weights = directory, engines, inline, weights
        self._store, self._holder, self._seconds, self._epoch = store, holder, seconds, epoch

    async def swap(
        self, engine: str, path: Path, version: int, *, manifest: str = "", last_good: Path | None = None,
        last_version: int = -1,
    ) -> SwapReport:  # fmt: skip
        """See `actors.ports.store.SwapRunner.swap`."""
        client = self._engines[engine]
        here = await self._weights.fetch(path, version, manifest)

        def job(epoch: int, until: float) -> SwapJob:
            return SwapJob(
                engine=client.url, path=os.path.abspath(here.path), version=version, manifest=here.manifest,
                result=str(self._files(engine).result), last_version=last_version, epoch=epoch, until=until,
                last_good=os.path.abspath(last_good) if last_good else "",
            )  # fmt: skip

        if engine in self._inline:
            return _report(await perform(job(self._epoch(), 0.0), client), version)
        until = time.monotonic() + self._seconds
        found = await self._store.change(take, _lease(engine), self._holder, self._seconds + _GRACE, str(version))
        if not found.taken:
            raise _under_way(engine, found)
        # The key not as an argument: those are for everybody on the machine to read.
        environment = {KEY_VARIABLE: client.key} if client.key else None
        outcome = await run_swap(job(found.epoch, until), environment=environment)
        await self._end(engine, found.epoch)
        return _report(outcome, version)

    async def collect(self, engine: str) -> SwapReport | None:
        """See `actors.ports.store.SwapRunner.collect`."""
        if engine in self._inline:
            return None
        files, found = self._files(engine), await self._store.ask(standing, _lease(engine))
        left = await anyio.to_thread.run_sync(files.epoch)
        if left == found.epoch:
            outcome = await collect(files.result, key=self._engines[engine].key)
            await self._end(engine, found.epoch)
            return None if outcome is None else _report(outcome, outcome.asked)
        if left is not None:
            # Another daemon has swapped since: what this program left half done must not be done now.
            _log.warning("swap_outdated", engine=engine, epoch=left, now=found.epoch)
            await anyio.to_thread.run_sync(files.discard)
        if found.seconds_left and not await self._over(engine, found):
            raise _under_way(engine, found)
        return None

    async def _end(self, engine: str, epoch: int) -> None:
        await self._store.change(give_back, _lease(engine), epoch)

    async def _over(self, engine: str, found: Standing) -> bool:
        """Whether a swap whose files are not here is over before its time, and note it if so."""
        # It runs on another machine, or its daemon died before it began; the engine is what tells. The label is the
        # last thing that a swap changes.
        client = self._engines[engine]
        over = str(await client.version()) == found.about and not await client.is_paused()
        if over:
            await self._end(engine, found.epoch)
        return over

    def _files(self, engine: str) -> SwapFiles:
        return SwapFiles(self._directory.absolute() / f"{engine}.json")


def _lease(engine: str) -> str:
    return f"swap:{engine}"


def _under_way(engine: str, found: Standing) -> EngineUnavailable:
    return EngineUnavailable(f"{engine}: a swap by {found.holder} may be under way for {found.seconds_left:.0f} s more")


def _report(outcome: SwapOutcome, version: int) -> SwapReport:
    """`outcome` as the port reports it; what came to nothing is raised."""
    if outcome.result == "unreachable":
        raise EngineUnavailable(outcome.reason)
    if outcome.result == "failed":
        raise SwapFailed(outcome.reason)
    return msgspec.structs.replace(msgspec.convert(outcome, SwapReport, from_attributes=True), version=version)
