"""Does the weather catch what it is there for? Bugs of the worst kinds are planted, and each must break its promise.

    python -m tests.simulation.planted --json build/planted.json

Each bug is in a part that stands in for the real one, in one small cell with a fleet, faults and five agents. Counted
is how many of the seeds caught it, and how many seeds it took. Without a bug the same cell must break nothing.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from actors.curation.curator import Curator
from actors.curation.pool import CuratorSettings, Selected
from actors.messages import BatchOrder, Feedback
from actors.ports.store import SwapReport
from actors.system.actor import Actor, Received, Result
from actors.trajectories.assembler import Assembler, AssemblerSettings
from actors.trajectories.stitching import Stitcher
from tests.benchmarks import report
from tests.simulation.plan import Cell
from tests.simulation.policies import SimulatedSwaps
from tests.simulation.world import Parts, simulate

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


class Early(SimulatedSwaps):
    """Says that it is done while the engine is still out."""

    async def swap(self, engine: str, path: Path, version: int, **options: Any) -> SwapReport:
        report = await super().swap(engine, path, version, **options)
        self._watch(engine, "begins")
        return report


class Newest(SimulatedSwaps):
    """Loads the newest version that there is, under the label that was asked for."""

    async def swap(self, engine: str, path: Path, version: int, **options: Any) -> SwapReport:
        report = await super().swap(engine, path, version, **options)
        if engine.startswith("serving"):
            names = [one.name[1:] for one in path.parent.glob("v*")]
            self.engines[engine].current = max(int(name) for name in names if name.isdecimal())
        return report


class Asleep(SimulatedSwaps):
    """Does not resume the third engine time."""

    async def swap(self, engine: str, path: Path, version: int, **options: Any) -> SwapReport:
        report = await super().swap(engine, path, version, **options)
        self.engines[engine].paused = len(self.calls) == 3
        return report


def parts_with(*, assembler: type[Assembler] | None = None, curator: type[Curator] | None = None,
           swaps: type[SimulatedSwaps] | None = None) -> type[Parts]:  # fmt: skip
    class Planted(Parts):
        """With the bug."""

        def __init__(self, world: Any, state: Path, real: SimulatedSwaps, keys: Any) -> None:
            if swaps is not None:
                real.__class__ = swaps
            super().__init__(world, state, real, keys)

        def make_assembler(self) -> Actor:
            """The assembler."""
            made = assembler or Assembler
            return made(AssemblerSettings(), store=self.world.store, clock=self.world.clock)

        def make_curator(self) -> Actor:
            """The curator."""
            made = curator or Curator
            return made(
                CuratorSettings(groups_per_batch=0), store=self.world.store, batches=self.state / "batches",
                clock=self.world.clock,
            )  # fmt: skip

    return Planted


BUGS: dict[str, tuple[str, dict[str, Any]]] = {
    "nothing": ("", {}),
    "calls forgotten at a restart": ("lost_exchange", {"assembler": Forgetful}),
    "reports lost": ("lost_outcome", {"assembler": HardOfHearing}),
    "an outcome counted twice": ("counted_twice", {"curator": Again}),
    "two swaps at once": ("two_swaps", {"swaps": Early}),
    "an unverified version serves": ("unverified", {"swaps": Newest}),
    "an engine is not resumed": ("paused", {"swaps": Asleep}),
    "a standstill without a word": ("silent", {"curator": Deaf}),
}
"""By name, the promise that it must break."""


def caught(name: str, seed: int) -> list[str]:
    """Promises that were broken."""
    ran = simulate(CELL, seed, parts_with(**BUGS[name][1]))
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
