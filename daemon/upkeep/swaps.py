"""Swaps for the swapper and the gatekeeper: behind their port stands the program of `adapters.engines.swap`.

An engine that serves users is swapped in a session of its own, which outlives the daemon and always resumes; the intent
is written first (`daemon.upkeep.swap_intents`). The shadow engine has no users: the same steps run in this process.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from actors.ports.errors import EngineUnavailable, SwapFailed
from actors.ports.store import SwapReport
from adapters.engines.swap import KEY_VARIABLE, collect, perform, run_swap
from adapters.engines.swap_files import SwapFiles, SwapJob, SwapOutcome
from adapters.engines.vllm import VllmEngine
from adapters.weights import WeightSource
from daemon.upkeep.swap_intents import Intent, SwapIntents, under_way

_log = structlog.get_logger(__name__)
_GRACE = 30.0
"""Seconds that an intent lasts longer than its program: for the last requests of one that is cut off."""


class Swaps:
    """A `SwapRunner` for the daemon's engines."""

    def __init__(
        self,
        directory: Path,
        engines: Mapping[str, VllmEngine],
        *,
        inline: frozenset[str],
        weights: WeightSource,
        intents: SwapIntents | None = None,
        seconds: float = 180.0,
        epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """
        Args:
            directory: for jobs, results and logs of the program, one set an engine.
            inline: engines without users.
            weights: brings versions to where the engines can read them.
            intents: what is about to be done; none only if no engine has users.
            seconds: that the program may take in all.
            epoch: of the lease that engines without users are loaded under.
        """
        self._directory, self._engines, self._inline, self._weights = directory, engines, inline, weights
        self._intents, self._seconds, self._epoch = intents, seconds, epoch

    async def swap(
        self,
        engine: str,
        path: Path,
        version: int,
        *,
        manifest: str = "",
        last_good: Path | None = None,
        last_version: int = -1,
    ) -> SwapReport:
        """See `actors.ports.store.SwapRunner.swap`."""
        client = self._engines[engine]
        here = await self._weights.fetch(path, version, manifest)

        def job(epoch: int, until: float) -> SwapJob:
            return SwapJob(
                engine=client.url,
                path=os.path.abspath(here.path),
                version=version,
                manifest=here.manifest,
                result=str(self._files(engine).result),
                last_good=os.path.abspath(last_good) if last_good else "",
                last_version=last_version,
                epoch=epoch,
                until=until,
            )

        if engine in self._inline:
            return _report(await perform(job(self._epoch(), 0.0), client), version)
        until = time.monotonic() + self._seconds
        intents = self._noted()
        epoch = await intents.begin(engine, version, self._seconds + _GRACE)
        # The key not as an argument: those are for everybody on the machine to read.
        environment = {KEY_VARIABLE: client.key} if client.key else None
        outcome = await run_swap(job(epoch, until), environment=environment)
        await intents.end(engine, epoch)
        return _report(outcome, version)

    async def collect(self, engine: str) -> SwapReport | None:
        """See `actors.ports.store.SwapRunner.collect`."""
        if engine in self._inline:
            return None
        files, intents = self._files(engine), self._noted()
        intent = await intents.look(engine)
        left = await anyio.to_thread.run_sync(files.epoch)
        if left == intent.epoch:
            outcome = await collect(files.result, key=self._engines[engine].key)
            await intents.end(engine, intent.epoch)
            return None if outcome is None else _report(outcome, outcome.asked)
        if left is not None:
            # Another daemon has swapped since: what this program left half done must not be done now.
            _log.warning("swap_outdated", engine=engine, epoch=left, now=intent.epoch)
            await anyio.to_thread.run_sync(files.discard)
        if intent.seconds_left and not await self._over(engine, intent):
            raise under_way(engine, intent.holder, intent.seconds_left)
        return None

    async def _over(self, engine: str, intent: Intent) -> bool:
        """Whether a swap whose files are not here is over before its time, and note it if so."""
        if intent.directory == await self._noted().directory():
            # Its program would hold the lock that we see: the daemon died before it started one.
            over = not await anyio.to_thread.run_sync(self._files(engine).busy)
        else:
            # On another machine; the engine is what tells. The label is the last thing that a swap changes.
            client = self._engines[engine]
            over = await client.version() == intent.version and not await client.is_paused()
        if over:
            await self._noted().end(engine, intent.epoch)
        return over

    def _noted(self) -> SwapIntents:
        assert self._intents is not None, "an engine with users is swapped under an intent"
        return self._intents

    def _files(self, engine: str) -> SwapFiles:
        return SwapFiles(self._directory.absolute() / f"{engine}.json")


def _report(outcome: SwapOutcome, version: int) -> SwapReport:
    """`outcome` as the port reports it; what came to nothing is raised.

    Raises:
        EngineUnavailable: the engine did not answer, nothing was done.
        SwapFailed: neither the new nor the last good weights could be confirmed.
    """
    if outcome.result == "unreachable":
        raise EngineUnavailable(outcome.reason)
    if outcome.result == "failed":
        raise SwapFailed(outcome.reason)
    return SwapReport(
        result=outcome.result,
        version=version,
        paused_seconds=outcome.paused_seconds,
        total_seconds=outcome.total_seconds,
        reason=outcome.reason,
        finished=outcome.finished,
    )
