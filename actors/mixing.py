"""How the members of a batch are drawn from what waits: freshness, learning gain, caps per key, and the replay share.

Pure. A unit that waits is a production trajectory or a whole sandbox group. Slot by slot:

- the freshest weight version first, because staleness costs more than any choice of tasks can bring;
- among units of one version clusters in proportion to their index (`actors.bandit`), and of each the newest;
- the last slots are replay: not of the cluster that leads the batch, and whose cluster waited longest.

No key (tenant, cluster, task) gets more than its share while a unit waits that is within all shares. When none does,
caps are let go one after the other, the tenant's last; so a cap never leaves a batch empty, or short, for want of other
keys.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from math import ceil

import msgspec

from actors.curriculum import Curriculum, slots


class Unit(msgspec.Struct, frozen=True):
    """What can be drawn as a whole."""

    name: str
    cluster: str
    tenant: str
    task: str
    """Empty where nobody named one: such units share no task."""
    version: int
    """Oldest weight version that sampled in it."""
    ended: float
    """Unix seconds."""

    @property
    def newest_first(self) -> tuple[int, float, str]:
        return (-self.version, -self.ended, self.name)


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of a batch, 0 to 1."""

    tenant: float = 1.0
    cluster: float = 1.0
    task: float = 1.0
    replay: float = 0.0


Key = tuple[str, str, str]


def draw(waiting: Iterable[Unit], wanted: int, shares: Shares, curriculum: Curriculum) -> list[Unit]:
    """At most `wanted` of `waiting`; fewer only if fewer wait. The same arguments give the same units.

    Changes nothing in `curriculum`: tell it what became of the units.
    """
    queues: defaultdict[Key, deque[Unit]] = defaultdict(deque)
    for unit in sorted(waiting, key=lambda unit: unit.newest_first):
        queues[(unit.tenant, unit.cluster, unit.task)].append(unit)
    wanted = min(wanted, sum(map(len, queues.values())))
    focus = wanted - slots(shares.replay, wanted)
    taken: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    caps = tuple(max(1, ceil(share * wanted - 1e-9)) for share in (shares.tenant, shares.cluster, shares.task))

    def within(keys: Sequence[Key]) -> Sequence[Key]:
        for kinds in (3, 2, 1):
            kept = [key for key in keys if all(not key[k] or taken[k][key[k]] < caps[k] for k in range(kinds))]
            if kept:
                return kept
        return keys

    def index(cluster: str) -> float:
        return curriculum.gains.index(cluster) / (1 + taken[1][cluster])

    drawn: list[Unit] = []
    for slot in range(wanted):
        leader = leading(taken[1])
        others = [key for key in queues if key[1] != leader] if slot >= focus else []
        keys = within(others or list(queues))
        if others:
            best = min(keys, key=lambda key: (taken[1][key[1]], curriculum.last(key[1]), queues[key][0].newest_first))
        else:
            best = min(keys, key=lambda key: _rank(queues[key][0], index(key[1])))
        drawn.append(queues[best].popleft())
        if not queues[best]:
            del queues[best]
        for kind, name in enumerate(best):
            taken[kind][name] += 1
    return drawn


def leading(clusters: Counter[str]) -> str:
    """The cluster with the most, the first by name among equals; empty if there is none."""
    return min(clusters, key=lambda name: (-clusters[name], name)) if clusters else ""


def _rank(unit: Unit, index: float) -> tuple[int, float, float, str]:
    return (-unit.version, -index, -unit.ended, unit.name)
