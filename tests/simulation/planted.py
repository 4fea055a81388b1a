"""Does the weather catch what it is there for? Bugs of the worst kinds are planted, and each must break its promise.

    python -m tests.simulation.planted --json build/planted.json

Each bug is in the product's own code, or in a part that stands in for the real one, in one small cell with a fleet,
faults and five agents. Counted is how many of the seeds caught it, and how many seeds it took. Without a bug the same
cell must break nothing.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import anyio

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings, Selected
from actors.deployment.swapper import Swapper
from actors.messages import BatchOrder, Feedback, Serving
from actors.ports.engines import Engine
from actors.ports.errors import EngineError
from actors.ports.store import SwapReport
from actors.system.actor import Actor, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.trajectories.assembler import Assembler, AssemblerSettings
from actors.trajectories.stitching import Stitcher
from adapters.engines import swap
from tests.benchmarks import report
from tests.simulation.parts import Parts
from tests.simulation.plan import Cell
from tests.simulation.policies import SimulatedSwaps
from tests.simulation.world import Ran, simulate

CELL = Cell(scenario="better", rate=10.0, feedback=1.0, agents=5, engines=3, faults=True, least=500)
SEEDS = 5


class Forgetful(Assembler):
    """Reads no open calls when it starts."""

    async def start(self) -> None:
        """As the real one, and then it forgets."""
        await super().start()
        self._stitcher = Stitcher(self._limits())


class HardOfHearing(Assembler):
    """Loses every tenth report."""

    async def handle(self, batch: Sequence[Received]) -> Result:
        """As the real one, of what is left."""
        return await super().handle([one for one in batch if not _unheard(one.message)])


def _unheard(message: object) -> bool:
    return isinstance(message, Feedback) and int(message.id[:4], 16) % 10 == 0


class Again(Curator):
    """Puts a run that it has just ordered back into the pool."""

    async def _write(self, selected: Selected) -> BatchOrder:
        order = await super()._write(selected)
        first = selected.items[0].attributed
        self._pool.add(first, self._clock())
        return order


class Deaf(Curator):
    """Orders thrice, and then neither orders nor says why."""

    async def _order(self, records: list[Any]) -> Result:
        if self.counts["orders"] < 3:
            return await super()._order(records)
        self.started = False
        return Result(records)


class Hasty(Swapper):
    """Swaps the other engines while it swaps one."""

    _at_once = False

    async def _converge(self, name: str) -> Serving | None:
        if self._at_once:
            return await super()._converge(name)
        self._at_once = True
        try:
            async with anyio.create_task_group() as group:
                for other in self._engines:
                    if other != name:
                        group.start_soon(super()._converge, other)
                return await super()._converge(name)
        finally:
            self._at_once = False


class Newest(SimulatedSwaps):
    """Loads the newest version that there is, under the label that was asked for."""

    async def swap(self, engine: str, path: Path, version: int, **options: Any) -> SwapReport:
        """As the real one, with another directory and nothing to check it by."""
        names = [one.name[1:] for one in path.parent.glob("v*") if one.name[1:].isdecimal()]
        newest = path.parent / f"v{max(names)}" if engine.startswith("serving") else path
        options["manifest"] = ""
        return await super().swap(engine, newest, version, **options)


async def resume_once(engine: Engine) -> None:
    """As `adapters.engines.swap` does, but for the second attempt."""
    with contextlib.suppress(EngineError):
        await engine.resume()


async def write_or_fail(self: Curator, selected: Selected) -> BatchOrder:
    """As the curator does, which then takes a full disk for the fault of a record."""
    try:
        return await _WRITE(self, selected)
    except DependencyUnavailable as error:
        raise OSError(str(error)) from error


_WRITE = Curator._write


class Bug(NamedTuple):
    """One of them; what is empty is as it should be."""

    assembler: type[Assembler] = Assembler
    curator: type[Curator] = Curator
    swapper: type[Swapper] = Swapper
    swaps: type[SimulatedSwaps] = SimulatedSwaps
    patch: tuple[Any, str, Any] | None = None
    """Module or class of the product, a name in it, and what stands there instead."""


def play(cell: Cell, seed: int, bug: Bug) -> Ran:
    """`cell` with `bug` in it."""
    with mock.patch.object(*bug.patch) if bug.patch else contextlib.nullcontext():
        return simulate(cell, seed, parts_with(bug))


def parts_with(bug: Bug) -> type[Parts]:
    """Makes the actors, one of them wrong."""

    class Planted(Parts):
        """With the bug."""

        def __init__(self, world: Any, state: Path, real: SimulatedSwaps, keys: Any) -> None:
            real.__class__ = bug.swaps
            super().__init__(world, state, real, keys)

        def make_assembler(self) -> Actor:
            """The assembler."""
            return bug.assembler(AssemblerSettings(), store=self.world.store, clock=self.world.clock)

        def make_curator(self) -> Actor:
            """The curator."""
            return bug.curator(
                CuratorSettings(groups_per_batch=0), store=self.world.store, batches=self.state / "batches",
                clock=self.world.clock,
            )  # fmt: skip

        def make_swapper(self) -> Actor:
            """The swapper."""
            made = super().make_swapper()
            made.__class__ = bug.swapper
            return made

    return Planted


BUGS: dict[str, tuple[str, Bug]] = {
    "nothing": ("", Bug()),
    "calls forgotten at a restart": ("lost_exchange", Bug(assembler=Forgetful)),
    "reports lost": ("lost_outcome", Bug(assembler=HardOfHearing)),
    "an outcome counted twice": ("counted_twice", Bug(curator=Again)),
    "two swaps at once": ("two_swaps", Bug(swapper=Hasty)),
    "an unverified version serves": ("unverified", Bug(swaps=Newest)),
    "an engine is not resumed": ("paused", Bug(patch=(swap, "_resume", resume_once))),
    "a full disk is a record's fault": ("parked", Bug(patch=(Curator, "_write", write_or_fail))),
    "a standstill without a word": ("silent", Bug(curator=Deaf)),
}
"""By name, the promise that it must break."""


def caught(name: str, seed: int) -> list[str]:
    """Promises that were broken."""
    ran = play(CELL, seed, BUGS[name][1])
    return sorted({one.promise for one in ran.broken})


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; exit status 1 if a bug was not caught, or something without one."""
    parser = report.arguments(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float] = {}
    wrong = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        plays = {name: [pool.submit(caught, name, seed) for seed in range(options.seeds)] for name in BUGS}
        for name, (promise, _) in BUGS.items():
            found = [play.result() for play in plays[name]]
            hits = [number for number, promises in enumerate(found) if promise in promises]
            wrong += bool(any(found)) if not promise else not hits
            figures[f"{name.replace(' ', '_')}_caught"] = len(hits) if promise else sum(map(bool, found))
            first = hits[0] + 1 if hits else "-"
            others = sorted({one for promises in found for one in promises} - {promise})
            share = f"{len(hits)} of {len(found)}" if promise else "-"
            rows.append((name, promise or "-", share, first, ", ".join(others)))
            print(f"{name}: {rows[-1][2]}", flush=True)
    report.table("Planted bugs", ("bug", "must break", "caught", "seeds until then", "broke as well"), rows)
    report.write(options.json, "planted", figures, list(range(options.seeds)))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
