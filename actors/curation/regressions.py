"""Which kinds of goal the policy has got worse at since it changed.

    (source, cluster, outcome, weight version)  ->  the current version's outcomes against those before

A swap, or an update of the shadow engine, begins a new era of a cluster. Its success is compared with that of the eras
before, of which each counts half as much as the one after it. A fall beyond chance (one-sided, 1 %) makes the cluster
regressed, until an era comes back to where it fell from. Pure and bounded.
"""

from collections import OrderedDict
from math import isfinite, sqrt

import msgspec

LEAST = 8
"""Outcomes on either side before they are compared."""
_FALL, _BACK = 2.33, 1.0
"""Standard errors below which it fell, and within which it is back."""
_MOST = 256.0
"""Outcomes of the past that count at most."""


class _Eras(msgspec.Struct):
    version: int
    tried: float = 0.0
    solved: float = 0.0
    tried_before: float = 0.0
    solved_before: float = 0.0
    fallen_from: float = -1.0
    """Success that it fell from; below 0: it has not."""


class Regressions:
    """Remembers each cluster's eras."""

    def __init__(self, limit: int = 1024) -> None:
        """
        Args:
            limit: clusters of a source that are remembered; the one heard of longest ago goes first.
        """
        self._limit = limit
        self._eras: OrderedDict[tuple[str, str], _Eras] = OrderedDict()

    def observe(self, source: str, cluster: str, outcome: float, version: int) -> None:
        """Take in an outcome that `version` sampled; -1, unknown, says nothing here."""
        if version < 0 or not isfinite(outcome):
            return
        key, value = (source, cluster), min(1.0, max(0.0, outcome))
        eras = self._eras.setdefault(key, _Eras(version))
        self._eras.move_to_end(key)
        while len(self._eras) > self._limit:
            self._eras.popitem(last=False)
        if version > eras.version:
            eras.tried_before, eras.solved_before = (
                eras.tried + eras.tried_before / 2,
                eras.solved + eras.solved_before / 2,
            )
            if eras.tried_before > _MOST:
                eras.solved_before, eras.tried_before = eras.solved_before * _MOST / eras.tried_before, _MOST
            eras.version, eras.tried, eras.solved = version, 0.0, 0.0
        if version < eras.version:
            eras.tried_before, eras.solved_before = eras.tried_before + 1.0, eras.solved_before + value
        else:
            eras.tried, eras.solved = eras.tried + 1.0, eras.solved + value
            _compare(eras)

    def fallen(self, cluster: str) -> bool:
        """Whether production or the sandbox shows that the policy has got worse at `cluster`."""
        return any(
            (eras := self._eras.get((source, cluster))) is not None and eras.fallen_from >= 0.0
            for source in ("production", "sandbox")
        )

    @property
    def clusters(self) -> tuple[str, ...]:
        """Those that are fallen."""
        return tuple(sorted({cluster for (_, cluster), eras in self._eras.items() if eras.fallen_from >= 0.0}))


def _compare(eras: _Eras) -> None:
    if eras.tried < LEAST or eras.tried_before < LEAST:
        return
    now, known = eras.solved / eras.tried, eras.fallen_from >= 0.0
    before = eras.fallen_from if known else eras.solved_before / eras.tried_before
    # One success and one failure more than there were: two eras without either have an error all the same.
    both = (eras.solved + eras.solved_before + 1.0) / (eras.tried + eras.tried_before + 2.0)
    error = sqrt(both * (1.0 - both) * (1.0 / eras.tried + 1.0 / eras.tried_before))
    if known:
        eras.fallen_from = -1.0 if now >= before - _BACK * error else eras.fallen_from
    elif before - now > _FALL * error:
        eras.fallen_from = before
