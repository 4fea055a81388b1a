"""Which trajectories make the next update: the pool of those that may, and the rules by which a batch is drawn from it.

Pure: time and the newest version come as arguments. Sandbox trajectories come in groups (attempts at one task, GRPO's
baseline) and only whole groups are used; production trajectories come alone and join them up to a share, or make the
batch by themselves where there is no sandbox. Whatever is not used has a reason, and the reason is counted.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from math import ceil, floor

import msgspec

from actors.holdout import SHARE, held_out
from actors.messages import Attributed, BatchItem
from actors.store import Dropped

_CLOSED_GROUPS = 4096
"""Groups that are remembered as used or dropped, to know their stragglers."""


class CuratorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes a batch."""

    groups_per_batch: int = 8
    """Complete sandbox groups that make an update; 0 without a sandbox: production alone."""
    group_size: int = 8
    """Attempts that make a group complete."""
    min_group: int = 4
    """A group that does not get complete is used with so many usable members, else dropped."""
    group_seconds: float = 120.0
    """How long an incomplete group is waited for."""
    production_per_batch: int = 8
    """Production trajectories that make an update where `groups_per_batch` is 0."""
    production_share: float = 0.25
    """Share of a batch with groups that may be production trajectories."""
    max_per_tenant: float = 0.5
    """Share of the production part that one tenant may have while others wait too."""
    max_staleness: int = 4
    """Updates that the oldest token of a trajectory may be behind the newest version."""
    guided_staleness: int = 1
    """The same for rollouts that saw experience: stripped and stale did not go together (0 % and 74 %)."""
    holdout_share: float = SHARE
    """Share of production that is kept for the gate and never trained on; must be the gate's."""
    pool_groups: int = 64
    """Groups that may wait; the oldest make room."""
    pool_production: int = 512
    """Production trajectories that may wait; the oldest make room."""
    order_seconds: float = 600.0
    """Without the version that an order asked for, it is sent again."""
    order_attempts: int = 5
    """Times that it is sent; then it is given up."""
    keep_files: int = 64
    """Batch files kept after use, newest first."""
    batch: int = 64
    """Records taken at a time."""
    tick_seconds: float = 1.0
    """How often deadlines are looked at."""


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a batch."""

    items: tuple[BatchItem, ...]
    groups: int
    production: int

    @property
    def min_version(self) -> int:
        """Oldest weight version that sampled a token."""
        return min(item.attributed.trajectory.min_version for item in self.items)


class _Group:
    """Attempts at one task."""

    def __init__(self, now: float) -> None:
        self.members: list[Attributed] = []
        self.arrived: set[str] = set()
        self.first = now
        self.whole = False
        """Complete, or as complete as it will get."""

    @property
    def oldest(self) -> int:
        return min((member.trajectory.min_version for member in self.members), default=-1)

    @property
    def equal(self) -> bool:
        return len({member.trajectory.outcome for member in self.members}) < 2


class Pool:
    """Trajectories that may still be trained on."""

    def __init__(self, settings: CuratorSettings) -> None:
        self._settings = settings
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._production: OrderedDict[str, Attributed] = OrderedDict()
        self._drops: list[Dropped] = []
        self.newest = 0
        """Highest version that was trained; staleness is counted from it."""
        self.counts: Counter[str] = Counter()
        """Dropped trajectories by reason, and equal_groups."""

    @property
    def whole_groups(self) -> int:
        """Groups that could be ordered now."""
        return sum(group.whole for group in self._groups.values())

    @property
    def waiting(self) -> int:
        """Trajectories in the pool."""
        return len(self._production) + sum(len(group.members) for group in self._groups.values())

    def take_drops(self) -> list[Dropped]:
        """What was dropped since the last call, to be recorded."""
        drops, self._drops = self._drops, []
        return drops

    def add(self, item: Attributed, now: float) -> None:
        """Take in an attributed trajectory, once."""
        run = item.trajectory
        if run.source == "production":
            reason = self._unfit(item) or ("held out" if self._held_out(item) else "")
            if reason:
                self._drop([item], reason)
                return
            self._production[item.id] = item
            while len(self._production) > self._settings.pool_production:
                self._drop([self._production.popitem(last=False)[1]], "pool full")
        elif run.source == "sandbox" and run.group:
            self._add_member(item, now)
        else:
            self._drop([item], "no group" if run.source == "sandbox" else run.source)

    def select(self, now: float) -> Selected | None:
        """Draw the next batch out of the pool, or None if it cannot be made yet."""
        self._refresh(now)
        if self._settings.groups_per_batch == 0:
            return self._from_traffic()
        while self.whole_groups >= self._settings.groups_per_batch:
            selected = self._from_groups()
            if selected is not None:
                return selected
        return None

    def _add_member(self, item: Attributed, now: float) -> None:
        name = item.trajectory.group
        if name in self._closed:
            self._drop([item], "group closed")
            return
        group = self._groups.setdefault(name, _Group(now))
        if item.id in group.arrived:
            return
        group.arrived.add(item.id)
        reason = self._unfit(item)
        if reason:
            self._drop([item], reason)
        else:
            group.members.append(item)
        if len(group.arrived) >= self._settings.group_size:
            group.whole = True
        while len(self._groups) > self._settings.pool_groups:
            self._drop(self._close(next(iter(self._groups))).members, "pool full")

    def _refresh(self, now: float) -> None:
        """Drop what has become too old, settle groups that will not get complete."""
        stale = [item for item in self._production.values() if self._stale(item)]
        for item in stale:
            del self._production[item.id]
        self._drop(stale, "stale")
        for name, group in list(self._groups.items()):
            stale = [member for member in group.members if self._stale(member)]
            group.members = [member for member in group.members if member not in stale]
            self._drop(stale, "stale")
            if not group.whole and now - group.first >= self._settings.group_seconds:
                group.whole = True
                self.counts["incomplete_groups"] += 1
            if group.whole and len(group.members) < self._settings.min_group:
                self._drop(self._close(name).members, "group too small")

    def _from_groups(self) -> Selected | None:
        """A batch of whole groups; None if there was nothing to learn from in the first so many."""
        whole = [(name, group) for name, group in self._groups.items() if group.whole]
        # The freshest first: what waits too long is dropped, so a backlog never makes every batch stale.
        whole.sort(key=lambda pair: -pair[1].oldest)
        items: list[BatchItem] = []
        groups = 0
        for name, _ in whole[: self._settings.groups_per_batch]:
            group = self._close(name)
            if group.equal:
                self.counts["equal_groups"] += 1
                self._drop(group.members, "equal outcomes")
                continue
            groups += 1
            reason = f"group {name}: {len(group.members)} of {self._settings.group_size}"
            items += [BatchItem(attributed=member, reason=reason) for member in group.members]
        if not groups:
            return None
        share = min(self._settings.production_share, 0.99)
        production = self._draw(floor(share / (1.0 - share) * len(items) + 1e-9))
        return Selected(items=(*items, *production), groups=groups, production=len(production))

    def _from_traffic(self) -> Selected | None:
        wanted = self._settings.production_per_batch
        if len(self._production) < wanted:
            return None
        items = self._draw(wanted, least=wanted)
        return Selected(items=tuple(items), groups=0, production=len(items)) if items else None

    def _draw(self, wanted: int, least: int = 0) -> list[BatchItem]:
        """At most `wanted` production trajectories out of the pool, the freshest first, within the tenants' shares.

        With `least`, none at all if there would be fewer, unless the pool holds twice as many: then others would wait
        for tenants who do not come.
        """
        tenants = {item.trajectory.tenant for item in self._production.values()}
        cap = wanted if len(tenants) < 2 else max(1, ceil(self._settings.max_per_tenant * wanted))
        taken: Counter[str] = Counter()
        drawn: list[Attributed] = []
        for item in sorted(self._production.values(), key=_freshness):
            if len(drawn) < wanted and taken[item.trajectory.tenant] < cap:
                taken[item.trajectory.tenant] += 1
                drawn.append(item)
        if len(drawn) < least and len(self._production) < 2 * least:
            return []
        for item in drawn:
            del self._production[item.id]
        return [BatchItem(attributed=item, reason=f"production: cluster {item.cluster or 'none'}") for item in drawn]

    def _unfit(self, item: Attributed) -> str:
        run = item.trajectory
        if not run.trainable:
            return "untrainable"
        if run.outcome is None:
            return "no outcome"
        if run.min_version < 0:
            return "unknown version"
        return "stale" if self._stale(item) else ""

    def _stale(self, item: Attributed) -> bool:
        run = item.trajectory
        guided = self._settings.guided_staleness if run.experience_ids else self._settings.max_staleness
        return self.newest - run.min_version > min(guided, self._settings.max_staleness)

    def _held_out(self, item: Attributed) -> bool:
        return held_out(item.id, share=self._settings.holdout_share)

    def _close(self, name: str) -> _Group:
        self._closed[name] = None
        if len(self._closed) > _CLOSED_GROUPS:
            self._closed.popitem(last=False)
        return self._groups.pop(name)

    def _drop(self, items: Sequence[Attributed], reason: str) -> None:
        if items:
            self.counts[reason] += len(items)
            self._drops += [Dropped(id=item.id, reason=reason) for item in items]


def _freshness(item: Attributed) -> tuple[int, float, str]:
    return (-item.trajectory.min_version, -item.trajectory.ended, item.id)
