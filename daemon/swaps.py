"""Swaps for the swapper and the gatekeeper: behind their port stands the program of `adapters.engines.swap`.

An engine that serves users is swapped by the program in a session of its own, which outlives the daemon and always
resumes. The shadow engine has no users: there the same steps run in this process, which spares a start of Python for
every candidate; a shadow engine that a dead daemon left paused is resumed by the next load.

Before either, the version is brought to where the engine can read it, and its signature checked, while the old one
serves (`adapters.weights`).
"""

import os
from collections.abc import Mapping
from pathlib import Path

from actors.ports import SwapReport
from adapters.engines.swap import KEY_VARIABLE, SwapJob, SwapOutcome, collect, perform, run_swap
from adapters.engines.vllm import VllmEngine
from adapters.errors import EngineUnavailable, SwapFailed
from adapters.weights import WeightSource


class Swaps:
    """A `SwapRunner` for the daemon's engines."""

    def __init__(
        self, directory: Path, engines: Mapping[str, VllmEngine], *, inline: frozenset[str], weights: WeightSource
    ) -> None:
        """
        Args:
            directory: for jobs, results and logs of the program, one set an engine.
            inline: engines without users.
            weights: brings versions to where the engines can read them.
        """
        self._directory, self._engines, self._inline, self._weights = directory, engines, inline, weights

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
        """See `actors.ports.SwapRunner.swap`."""
        client = self._engines[engine]
        here = await self._weights.fetch(path, version, manifest)
        job = SwapJob(
            engine=client.url,
            path=os.path.abspath(here.path),
            version=version,
            manifest=here.manifest,
            result=str(self._result(engine)),
            last_good=os.path.abspath(last_good) if last_good else "",
            last_version=last_version,
        )
        if engine in self._inline:
            return _report(await perform(job, client), version)
        # Not as an argument: those are for everybody on the machine to read.
        outcome = await run_swap(job, environment={KEY_VARIABLE: client.key} if client.key else None)
        return _report(outcome, version)

    async def collect(self, engine: str) -> SwapReport | None:
        """See `actors.ports.SwapRunner.collect`."""
        if engine in self._inline:
            return None
        job = self._result(engine)
        outcome = await collect(job, key=self._engines[engine].key)
        return None if outcome is None else _report(outcome, outcome.asked)

    def _result(self, engine: str) -> Path:
        return self._directory.absolute() / f"{engine}.json"


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
