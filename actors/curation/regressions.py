"""Which kinds of goal the policy has got worse at since it changed.

    (source, cluster, outcome, weight version)  ->  the current version's outcomes against those before

A swap, or an update of the shadow engine, begins a new era of a cluster, unless the one before has too few outcomes to
be looked at twice, in the sandbox four times: then they are one. Its success is compared with that of the eras before,
of which the newest outcomes count, by the exact test (`actors.statistics.change_tests.count_rise`); they are compared
when the era has `LEAST` outcomes, and again at each `_GROWTH` times as many. All looks at an era of all clusters that
can be compared, in both sources, err with `ERROR` together (a union bound). The test takes outcomes for independent. So
all attempts at one task are one outcome, whether half of them succeeded; and as a tool that is away fails several runs
in a row, a fall must show at two looks in a row, of which the second has half as many outcomes again.
A cluster that fell is regressed until an era comes back to where it fell from. Pure and bounded.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil, isfinite, sqrt

import msgspec

from actors.statistics.change_tests import Looks, count_rise, planned_looks

LEAST = 8
"""Outcomes on either side before they are compared."""
ERROR = 0.02
"""Chance that any cluster is said to have fallen though none has, an era: at this, what fails together stays below 5 %
too (docs/promotion.md)."""
_GROWTH = 1.5
_LAST = 256
"""Outcomes of an era at which it is looked at last."""
_BACK = 1.0
"""Standard errors within which it is back."""
_MOST = 256
"""Outcomes of the past that count at most."""
_TWICE = ceil(LEAST * _GROWTH)
"""Outcomes of an era at its second look."""
_PLAYED = ceil(ceil(_TWICE * _GROWTH) * _GROWTH)
"""At its fourth: so long an era lasts in the sandbox, where every update is another version and brings a few tasks."""
_PLANNED = planned_looks(LEAST, _GROWTH, _LAST)


class _Eras(msgspec.Struct):
    since: int
    """First version of the era,"""
    version: int
    """and its newest."""
    tried: int = 0
    solved: int = 0
    before: list[bool] = []
    """Outcomes of eras before, the newest last."""
    looks: Looks = msgspec.field(default_factory=Looks)
    suspect: bool = False
    """The last look showed a fall."""
    fallen_from: float = -1.0
    """Success that it fell from; below 0: it has not."""
    request: str = ""
    """Of which attempts come,"""
    attempts: list[float] = []
    """how they went,"""
    sampled: int = -1
    """and by which version: they count when the next request comes."""


class Regressions:
    """Remembers each cluster's eras."""

    def __init__(self, limit: int = 1024) -> None:
        """
        Args:
            limit: clusters of a source that are remembered; the one heard of longest ago goes first.
        """
        self._limit = limit
        self._eras: OrderedDict[tuple[str, str], _Eras] = OrderedDict()

    def observe(self, source: str, cluster: str, outcome: float, version: int, request: str = "") -> None:
        """Take in an outcome that `version` sampled, a success from one half on; -1, unknown, says nothing here.

        Args:
            request: what it is an attempt at, where there are several; they come one after the other.
        """
        if version < 0 or not isfinite(outcome):
            return
        key = (source, cluster)
        eras = self._eras.setdefault(key, _Eras(version, version))
        self._eras.move_to_end(key)
        while len(self._eras) > self._limit:
            self._eras.popitem(last=False)
        if request and request == eras.request:
            eras.attempts.append(outcome)
            return
        if eras.attempts:
            self._count(eras, sum(eras.attempts) / len(eras.attempts) >= 0.5, eras.sampled)
        eras.request, eras.attempts, eras.sampled = request, [outcome] if request else [], version
        if not request:
            self._count(eras, outcome >= 0.5, version)

    def _count(self, eras: _Eras, success: bool, version: int) -> None:
        if version > eras.version and eras.tried >= (_PLAYED if eras.request else _TWICE):
            eras.before = _past(eras.before, eras.solved, eras.tried)
            eras.since, eras.tried, eras.solved, eras.looks, eras.suspect = version, 0, 0, Looks(), False
        eras.version = max(eras.version, version)
        if version < eras.since:
            eras.before = _past(eras.before, int(success), 1)
        else:
            eras.tried, eras.solved = eras.tried + 1, eras.solved + success
            _compare(eras, self._error)

    def _error(self) -> float:
        """Each comparable cluster's part of what all may err, at a look."""
        compared = sum(len(eras.before) >= LEAST for eras in self._eras.values())
        return ERROR / max(1, compared)

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


def _past(before: list[bool], solved: int, tried: int) -> list[bool]:
    """The newest outcomes, an era's spread evenly: which of them are let go of must not depend on how they were."""
    count = min(tried, _MOST)
    newer = [(at + 1) * solved // tried > at * solved // tried for at in range(tried - count, tried)]
    return [*before, *newer][-_MOST:]


def _compare(eras: _Eras, error_of_one: Callable[[], float]) -> None:
    if len(eras.before) < LEAST:
        return
    now = eras.solved / eras.tried
    if eras.fallen_from >= 0.0:
        # One success and one failure more than there were: two eras without either have an error all the same.
        both = (eras.solved + sum(eras.before) + 1.0) / (eras.tried + len(eras.before) + 2.0)
        error = sqrt(both * (1.0 - both) * (1.0 / eras.tried + 1.0 / len(eras.before)))
        if eras.tried >= LEAST and now >= eras.fallen_from - _BACK * error:
            eras.fallen_from = -1.0
            return
    elif eras.looks.taken < _PLANNED and eras.looks.due(eras.tried, LEAST):
        eras.looks.take(eras.tried, _GROWTH)
        failed, failed_before = eras.tried - eras.solved, len(eras.before) - sum(eras.before)
        p = count_rise((failed, eras.tried), (failed_before, len(eras.before)))
        before, eras.suspect = eras.suspect, p <= eras.looks.spend(error_of_one(), _PLANNED)
        if before and eras.suspect:
            eras.fallen_from = sum(eras.before) / len(eras.before)
