"""Does the weather catch what it is there for? Bugs of the worst kinds are planted, and each must break its promise.

    python -m tests.simulation.planted         exit status 1 if one is missed

Each bug is in the product's own code, or in a part that stands in for the real one, in a cell with a fleet, faults and
five agents.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest import mock

import anyio

from actors.curation.curator import Curator
from actors.deployment.swapper import Swapper
from actors.messages import Attributed, Feedback, Serving
from actors.ports.engines import Engine
from actors.ports.errors import EngineError
from actors.ports.store import SwapReport
from actors.system.actor import Actor, Received, Result
from actors.trajectories.assembler import Assembler
from actors.trajectories.stitching import Stitcher
from actors.versions.desired_state import Goal
from adapters.engines import swap
from tests.simulation.parts import Parts
from tests.simulation.plan import Cell
from tests.simulation.policies import SimulatedSwaps
from tests.simulation.world import Ran, simulate

CELL = Cell(scenario="better", rate=10.0, feedback=1.0, agents=5, engines=3, faults=True, least=500)
SEEDS = (0, 1, 2)


class Forgetful(Assembler):
    """Reads no open calls when it starts."""

    async def start(self) -> None:
        await super().start()
        self._stitcher = Stitcher(self._limits)


class HardOfHearing(Assembler):
    """Loses every tenth report."""

    async def handle(self, batch: Sequence[Received]) -> Result:
        lost = [one for one in batch if isinstance(one.message, Feedback) and int(one.message.id[:4], 16) % 10 == 0]
        return await super().handle([one for one in batch if one not in lost])


class Again(Curator):
    """Puts a run that it has just ordered back into the pool."""

    async def _order(self, records: list[Any]) -> Result:
        before = self.outstanding
        result = await super()._order(records)
        if self.outstanding is not None and self.outstanding is not before:
            first = await self._store.trajectory(self.outstanding.trajectories[0])
            self.pool.add(cast(Attributed, first), self._clock())
        return result


class Deaf(Curator):
    """Orders thrice, and then neither orders nor says why."""

    orders = 0

    async def _order(self, records: list[Any]) -> Result:
        if self.orders < 3:
            before = self.outstanding
            result = await super()._order(records)
            self.orders += self.outstanding is not None and self.outstanding is not before
            return result
        self.started = False
        return Result(records)


class Hasty(Swapper):
    """Swaps all engines when it is to swap one."""

    async def _swap(self, name: str, want: Goal, version: int) -> Serving | None:
        try:
            async with anyio.create_task_group() as group:
                for other in self._engines:
                    if other != name:
                        group.start_soon(self._run, other, want, version)
                return await super()._swap(name, want, version)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors


class Newest(SimulatedSwaps):
    """Loads the newest version that there is, under the label that was asked for."""

    async def swap(self, engine: str, path: Path, version: int, **options: Any) -> SwapReport:
        names = [one.name[1:] for one in path.parent.glob("v*") if one.name[1:].isdecimal()]
        newest = path.parent / f"v{max(names)}" if engine.startswith("serving") else path
        options["manifest"] = ""
        return await super().swap(engine, newest, version, **options)


async def resume_once(engine: Engine) -> None:
    with contextlib.suppress(EngineError):
        await engine.resume()


class Bug(NamedTuple):
    """One of them: an actor by name and what stands there instead; or other swaps; or a name of the product patched."""

    actor: str = ""
    kind: type[Any] = object
    swaps: type[SimulatedSwaps] = SimulatedSwaps
    patch: tuple[Any, str, Any] | None = None


def play(cell: Cell, seed: int, bug: Bug) -> Ran:
    """`cell` with `bug` in it."""

    class Planted(Parts):
        def __init__(self, world: Any, state: Path, real: SimulatedSwaps, keys: Any) -> None:
            real.__class__ = bug.swaps
            super().__init__(world, state, real, keys)

        def make(self, name: str) -> Actor:
            made = super().make(name)
            if name == bug.actor:
                made.__class__ = bug.kind
            return made

    with mock.patch.object(*bug.patch) if bug.patch else contextlib.nullcontext():
        return simulate(cell, seed, Planted)


BUGS: dict[str, tuple[str, Bug]] = {
    "calls forgotten at a restart": ("lost_exchange", Bug("assembler", Forgetful)),
    "reports lost": ("lost_outcome", Bug("assembler", HardOfHearing)),
    "an outcome counted twice": ("counted_twice", Bug("curator", Again)),
    "two swaps at once": ("two_swaps", Bug("swapper", Hasty)),
    "an unverified version serves": ("unverified", Bug(swaps=Newest)),
    "an engine is not resumed": ("paused", Bug(patch=(swap, "_resume", resume_once))),
    "a standstill without a word": ("silent", Bug("curator", Deaf)),
}
"""By name, the promise that it must break."""


def main() -> int:
    missed = 0
    for name, (promise, bug) in BUGS.items():
        caught = [any(one.promise == promise for one in play(CELL, seed, bug).broken) for seed in SEEDS]
        print(f"{name}: {promise} broken in {sum(caught)} of {len(caught)} seeds", flush=True)
        missed += not any(caught)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
