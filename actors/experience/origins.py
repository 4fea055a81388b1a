"""Who stands behind a lesson: how many independent origins its evidence has, and whose word most of it is.

Whoever can send traffic can write lessons: a trajectory shows whatever its sender says that tools answered. So a lesson
needs evidence that did not come from one hand. Our own trials in the sandbox are trusted, each for itself. Of
production, an origin is a party (`actors.statistics.parties`); only where a tenant has no more than one key is it a
conversation: lessons never leave their tenant, and whoever holds its only key has nobody to mislead but himself.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

from actors.messages import Trajectory
from actors.statistics.parties import party_of

TRUSTED = frozenset({"sandbox", "probe"})
"""Sources of trajectories that nobody outside writes."""
INDEPENDENT = 2
"""Origins that a lesson needs, on both sides of a contrast; below it is quarantined. One hand is what has to be kept
out, and with two keys there may never be a third."""
_TENANTS = 4096
"""Tenants whose keys are remembered."""


def whose(run: Trajectory) -> str:
    """The party whose evidence `run` is; each of our own is one for itself, so that no cap ever finds it loud."""
    return f"own:{run.id}" if run.source in TRUSTED else party_of(run.tenant, run.caller)


class Origins:
    """Tells origins apart; remembers of each tenant whether it has several keys.

    Args:
        known: keys seen so far, by tenant, as `known` gave them.
    """

    def __init__(self, known: Mapping[str, Iterable[str]] | None = None) -> None:
        self._keys: OrderedDict[str, tuple[str, ...]] = OrderedDict(
            (tenant, tuple(keys)[:2]) for tenant, keys in (known or {}).items()
        )

    @property
    def known(self) -> dict[str, tuple[str, ...]]:
        """Up to two keys of each tenant: with two there are several, and more makes no difference."""
        return dict(self._keys)

    def see(self, run: Trajectory) -> bool:
        """Note the key of `run`; True if that was news."""
        keys = self._keys.get(run.tenant, ())
        if run.source in TRUSTED or not run.caller or run.caller in keys or len(keys) >= 2:
            return False
        self._keys[run.tenant] = (*keys, run.caller)
        if len(self._keys) > _TENANTS:
            self._keys.popitem(last=False)
        return True

    def several(self, tenant: str) -> bool:
        """Whether `tenant` has more than one key."""
        return len(self._keys.get(tenant, ())) > 1

    def of(self, run: Trajectory) -> str:
        """The origin of `run`; equal for runs that say the same thing twice, not independently."""
        if run.source in TRUSTED:
            return f"own:{run.id}"
        return self.party(run) or f"talk:{run.continues or run.id}"

    def party(self, run: Trajectory) -> str:
        """Whose word `run` is, if its tenant has several keys; empty for our own trials, and where there is one key.

        A call without a key is one more party, for all of them.
        """
        return whose(run) if run.source not in TRUSTED and self.several(run.tenant) else ""

    def parties(self, runs: Iterable[Trajectory]) -> tuple[str, ...]:
        """The parties among `runs`, those with most of them first."""
        return tuple(party for party, _ in Counter(filter(None, map(self.party, runs))).most_common())
