"""How far a candidate has moved from what serves: KL on production tokens, in nats a token.

Both versions score the sampled tokens of held-out runs; k3 (Schulman 2020) is unbiased for KL(incumbent || candidate)
on the incumbent's tokens, and never negative. The two parties that pull it hardest are left out: anybody can write what
no version has seen. A policy can move far and do well on all tasks that are asked of it here: the limit is for the
others.
"""

from collections.abc import Collection, Sequence
from math import fsum, nan

import msgspec
import numpy as np

from actors.gate.asking import score
from actors.gate.evidence import HeldOut, short_runs
from actors.gate.panel import Finding, Report
from actors.ports.engines import Engine
from actors.statistics.parties import set_aside
from actors.store import Store

LIMIT = 0.5
"""Nats a token that a candidate may be away from the incumbent."""
_LEAST = 512
"""With fewer sampled tokens nothing is concluded."""


class Moved(msgspec.Struct, frozen=True):
    """What the tokens of one run say."""

    party: str
    nats: float
    """Of the candidate from the incumbent."""
    tokens: int


def moved(party: str, candidate: Sequence[float], incumbent: Sequence[float]) -> Moved:
    """From the log-probs of a run's sampled tokens under both versions."""
    gaps = np.minimum(np.asarray(candidate, np.float64) - np.asarray(incumbent, np.float64), 20.0)
    return Moved(party, float((np.expm1(gaps) - gaps).sum()), len(gaps))


def distance(runs: Sequence[Moved], limit: float) -> tuple[float, Report]:
    """Nats a token over `runs`, and what follows if that is above `limit`."""

    def kl(left_out: Collection[str]) -> float:
        kept = [one for one in runs if one.party not in left_out]
        tokens = sum(one.tokens for one in kept)
        return fsum(one.nats for one in kept) / tokens if tokens else nan

    found, tokens = kl(set_aside([one.party for one in runs], kl)), sum(one.tokens for one in runs)
    found = found if tokens else 0.0
    figures = {"drift_tokens": float(tokens), "drift_kl": found}
    reason = f"{found:.3f} nats a token from the incumbent on production tokens, {limit:g} are allowed"
    far = tokens >= _LEAST and found > limit
    return found, Report((Finding("drift", reason),) if far else (), figures)


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
        runs = [
            moved(one.party, new, old)
            for one, new, old in zip(self._runs, candidate, incumbent, strict=True)
            if new is not None and old is not None
        ]
        return distance(runs, self._limit)[1]
