"""How far a candidate has moved from what serves, on production tokens.

Both versions score the sampled tokens of held-out runs (`weighing.distance`). A policy can move far and do well on all
tasks that are asked of it here: the limit is for the others.
"""

from collections.abc import Sequence

from actors.gate.asking import score
from actors.gate.evidence import HeldOut, short_runs
from actors.gate.panel import Report
from actors.gate.weighing import distance, scored
from actors.ports.engines import Engine
from actors.store import Store

LIMIT = 0.5
"""Nats a token that a candidate may be away from the incumbent."""


class DistanceCheck:
    """`Check` of the distance, where the trial does not measure it."""

    name = "drift"

    def __init__(self, *, engine: Engine, store: Store, most: int = 64, limit: float = LIMIT) -> None:
        """
        Args:
            most: runs that are scored at most; 0 measures nothing.
        """
        self._engine, self._store, self._most, self._limit = engine, store, most, limit
        self._runs: list[HeldOut] = []

    async def gather(self) -> int:
        self._runs = await short_runs(self._store, self._most)
        return len(self._runs)

    async def measure(self) -> list[list[float] | None]:
        """Log-probs of the sampled tokens of each run; None where the engine refused one."""
        return await score(self._engine, [one.run for one in self._runs])

    def judge(self, candidate: Sequence[list[float] | None], incumbent: Sequence[list[float] | None]) -> Report:
        every = zip(self._runs, candidate, incumbent, strict=True)
        both = [scored(one, new, old) for one, new, old in every if new is not None and old is not None]
        return distance(both, self._limit)[1]
