"""How the members of a batch are drawn from what waits: freshness, learning gain, caps, and the replay share.

Slot by slot: the freshest weight version first; then clusters in proportion to their index, the newest unit of each;
the last slots are replay, not of the leading cluster. No key (party, cluster, task) gets more than its share while
others wait; where none does, the task's cap gives way first and the party's last. Pure.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from math import ceil, floor

import msgspec

from actors.curation.curriculum import Curriculum, slots
from actors.statistics.parties import CAP, party_of


class Unit(msgspec.Struct, frozen=True):
    """What can be drawn as a whole."""

    name: str
    cluster: str
    tenant: str
    caller: str
    """Id of the agent key; empty where there is none, as in the sandbox."""
    task: str
    """Empty where nobody named one: such units share no task."""
    version: int
    """Oldest weight version that sampled in it."""
    ended: float
    """Unix seconds."""

    @property
    def newest_first(self) -> tuple[int, float, str]:
        return (-self.version, -self.ended, self.name)


MAX_PER_CLUSTER = 0.75
"""Share of the groups, and of the production part, that one cluster of goals may have while others wait too."""
MAX_PER_TASK = 0.5
"""Like `MAX_PER_CLUSTER`, of one task: half of a batch of one task still compares it with others."""
Key = tuple[str, str, str]
_CLUSTER = 1
"""Where the cluster stands in a key."""


def draw(waiting: Iterable[Unit], wanted: int, replay: float, curriculum: Curriculum) -> list[Unit]:
    """At most `wanted` of `waiting`; fewer only if fewer wait. Of them a share `replay` is not of the leading cluster.
    The same arguments give the same units; `curriculum` is to be told what became of them."""
    queues: defaultdict[Key, deque[Unit]] = defaultdict(deque)
    for unit in sorted(waiting, key=lambda unit: unit.newest_first):
        queues[(party_of(unit.tenant, unit.caller), unit.cluster, unit.task)].append(unit)
    wanted = min(wanted, sum(map(len, queues.values())))
    focus = wanted - slots(replay, wanted)
    parties = len({party for party, _, _ in queues})
    of_party = floor(max(CAP, 1 / max(1, parties)) * wanted + 1e-9)
    caps = tuple(
        max(1, cap) for cap in (of_party, *(ceil(each * wanted - 1e-9) for each in (MAX_PER_CLUSTER, MAX_PER_TASK)))
    )
    taken: tuple[Counter[str], ...] = tuple(Counter() for _ in caps)
    clusters = taken[_CLUSTER]

    def within(keys: Sequence[Key]) -> Sequence[Key]:
        for kind, cap in enumerate(caps):
            keys = [key for key in keys if not key[kind] or taken[kind][key[kind]] < cap] or keys
        return keys

    def index(cluster: str) -> float:
        return curriculum.gains.index(cluster) / (1 + clusters[cluster])

    def waited(cluster: str, unit: Unit) -> tuple[int, float, tuple[int, float, str]]:
        return (clusters[cluster], curriculum.last(cluster), unit.newest_first)

    drawn: list[Unit] = []
    for slot in range(wanted):
        leader = min(clusters, key=lambda name: (-clusters[name], name)) if clusters else ""
        others = [key for key in queues if key[_CLUSTER] != leader] if slot >= focus else []
        keys = within(others or list(queues))
        if others:
            best = min(keys, key=lambda key: waited(key[_CLUSTER], queues[key][0]))
        else:
            best = min(keys, key=lambda key: _rank(queues[key][0], index(key[_CLUSTER])))
        drawn.append(queues[best].popleft())
        if not queues[best]:
            del queues[best]
        for kind, name in enumerate(best):
            taken[kind][name] += 1
    return drawn


def _rank(unit: Unit, index: float) -> tuple[int, float, float, str]:
    return (-unit.version, -index, -unit.ended, unit.name)
