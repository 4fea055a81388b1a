"""Strata: like compared with like, as finely as there is enough to compare.

A run's place says what it is like, the coarsest first: whose it is, and under what; what it was asked for. The coarsest
level is always told apart, a finer one only where it is common: a run or two say nothing of the other side.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping

from actors.statistics.change_tests import Strata

Place = tuple[Hashable, ...]
"""What a run is like, the coarsest first."""
COMMON = 8
"""Runs of a place on one side, from which on it is compared for itself; what is rarer is one."""


def sorted_out(runs: Iterable[tuple[Place, bool, float]]) -> Strata:
    """Strata of runs, each (place, whether it is on the first side, its value)."""
    known = list(runs)
    stratum = stratum_of(Counter((place, mine) for place, mine, _ in known))
    found: defaultdict[Place, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for place, mine, value in known:
        found[stratum[place]][0 if mine else 1].append(value)
    return list(found.values())


def stratum_of(runs: Mapping[tuple[Place, bool], int]) -> dict[Place, Place]:
    """By place its stratum: the finest of its levels at which what is left is common, else the coarsest."""
    found: dict[Place, Place] = {}
    depth = max((len(place) for place, _ in runs), default=0)
    left = runs
    while left:
        counts: defaultdict[tuple[Place, bool], int] = defaultdict(int)
        for (place, mine), count in left.items():
            counts[place[:depth], mine] += count
        common = {place for (place, _), count in counts.items() if depth <= 1 or count >= COMMON}
        found |= {place: place[:depth] for place, _ in left if place[:depth] in common}
        left = {key: count for key, count in left.items() if key[0] not in found}
        depth -= 1
    return found
