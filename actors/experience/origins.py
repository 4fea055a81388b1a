"""Who stands behind a lesson: how many independent origins its evidence has, and which key brought most of it.

Whoever can send traffic can write lessons: a trajectory shows whatever its sender says that tools answered. So a lesson
needs evidence that did not come from one hand. Our own trials in the sandbox are trusted, each for itself. Of
production, an origin is an agent key; only where a tenant has no more than one key is it a conversation: lessons never
leave their tenant, and whoever holds its only key has nobody to mislead but himself.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from actors.messages import Trajectory

TRUSTED = frozenset({"sandbox", "probe"})
"""Sources of trajectories that nobody outside writes."""
_TENANTS = 4096
"""Tenants whose keys are remembered."""


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
        return f"key:{run.caller}" if run.source not in TRUSTED and self.several(run.tenant) else ""

    def parties(self, runs: Iterable[Trajectory]) -> tuple[str, ...]:
        """The parties among `runs`, those with most of them first."""
        return tuple(party for party, _ in Counter(filter(None, map(self.party, runs))).most_common())


class DefenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What keeps one hand from writing the lessons of all."""

    min_sources: int = 2
    """Independent origins that a lesson needs: agent keys, or conversations where the tenant has one key alone. On both
    sides of a contrast. Trials in the sandbox and probes are trusted. Below it a lesson is quarantined."""
    max_share: float = 0.5
    """Share of the trajectories that are contrasted which one tenant, and which one key of a tenant, may hold while
    there are others."""
    max_per_key: int = 32
    """Lessons not yet retired that one key may have behind it by itself."""
