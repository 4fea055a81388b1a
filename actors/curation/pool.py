"""Which trajectories make the next update: the pool of those that may, and the rules by which a batch is drawn from it.

Pure. Sandbox trajectories come in groups (attempts at one task) and only whole groups are used; production's join them
up to a share, or make the batch where there is no sandbox. Who goes first is `actors.curation.batch_sampling`'s to say.
Whatever is not used has a reason, and the reason is counted.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import floor, isfinite

import msgspec

from actors.curation.batch_sampling import Unit, draw
from actors.curation.curriculum import Curriculum
from actors.curation.freshness import Fate, Freshness
from actors.kinds.holdout import held_out
from actors.kinds.kinds import Kinds
from actors.messages import Attributed, BatchItem, Trajectory
from actors.messages.bounded import Bounded
from actors.provisional.waiting import Chance
from actors.store import Dropped

GUIDED_STALENESS = 1
"""Like `max_staleness`, of rollouts that saw experience: stripped and stale did not go together (0 % and 74 %)."""
MIN_GROUP = 4
"""A group that does not get complete is used with so many usable members, else dropped."""
WAIT_SECONDS = 1800.0
"""How long whole groups, or production enough for an update, wait for the rest of a batch; then they are ordered
without it. Production alone is never ordered in less than `production_per_batch`."""
POOL_GROUPS = 64
"""Groups that may wait; the oldest make room."""
POOL_PRODUCTION = 512
"""Production trajectories that may wait; the oldest make room."""


class CuratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a batch."""

    groups_per_batch: int = 8
    """Complete sandbox groups that make an update. 0: production alone makes one, as it does without
    `sandbox.environment`."""
    group_size: int = 8
    """Attempts that make a group complete."""
    group_seconds: float = 120.0
    """How long an incomplete group is waited for."""
    production_per_batch: int = 8
    """Production trajectories that make an update where no groups do."""
    provisional: bool = False
    """Train also on runs whose outcome nobody reported, with what the outcome model makes of them, by its weight; see
    docs/how-it-learns.md. Off, it only learns and is shown."""
    production_share: float = 0.25
    """Share of a batch with groups that may be production trajectories."""
    replay_share: float = 0.25
    """Share of a batch from other clusters than the one that leads it: earlier tasks, attempted again in the sandbox,
    or what else waits. Measured against forgetting: 0.25 protects, 0.1 does not."""
    mix_share: float = 0.125
    """Share of the sandbox's tasks that the environment chooses, so that new kinds are found; 1 for all of them."""
    max_staleness: int = 4
    """Updates that the oldest token of a trajectory may be behind what is trained. What comes from the version that
    serves is not dropped for it: it waits until something newer serves, or the learner goes back."""

    @property
    def group_replay(self) -> float:
        """Replay among the groups: theirs is the share of the whole batch, whatever production brings."""
        return min(1.0, self.replay_share / (1.0 - self.production_share))

    def curriculum(self, kinds: Kinds | None = None) -> Curriculum:
        """A fresh one by these settings."""
        replay_share = min(self.group_replay, 1.0 - self.mix_share)
        return Curriculum(kinds, replay_share=replay_share, mix_share=self.mix_share)


class _Group:
    """Attempts at one task."""

    def __init__(self, now: float) -> None:
        self.members: list[Attributed] = []
        self.arrived: set[str] = set()
        self.first = now
        self.whole = False
        """Complete, or as complete as it will get."""

    @property
    def ids(self) -> list[str]:
        return [member.id for member in self.members]

    @property
    def equal(self) -> bool:
        return len({member.trajectory.outcome for member in self.members}) < 2


class TrainingPool:
    """Trajectories that may still be trained on."""

    def __init__(
        self,
        settings: CuratorSettings,
        curriculum: Curriculum | None = None,
        *,
        exam: Callable[[str], bool] = held_out,
    ) -> None:
        """
        Args:
            exam: whether a production trajectory, by id, is the gate's and never trained on.
        """
        self._settings, self.held_out = settings, exam
        self._curriculum = curriculum or settings.curriculum()
        self._kinds = self._curriculum.kinds
        self.clear()

    def clear(self) -> None:
        """Forget what waits, and what is fresh."""
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._production: OrderedDict[str, Attributed] = OrderedDict()
        self._guesses: Bounded[str, tuple[Attributed, Chance]] = Bounded(POOL_PRODUCTION)
        """Unreported runs of which the outcome model may speak; they take what room reported ones leave."""
        self._drops: list[Dropped] = []
        self._since: float | None = None
        """Since when something waits for the rest of a batch."""
        self.freshness = Freshness()
        """What is trained, what serves, and so what is fresh."""
        self._settled = self.freshness.revision

    @property
    def whole_groups(self) -> int:
        """Groups that could be ordered now."""
        return sum(group.whole for group in self._groups.values())

    @property
    def waiting(self) -> int:
        """Trajectories in the pool."""
        return len(self._production) + sum(len(group.members) for group in self._groups.values())

    @property
    def fresh(self) -> int:
        """Production trajectories that could be ordered now."""
        return len(self._fresh()) + len(self._fresh_guesses())

    @property
    def guesses(self) -> int:
        """Unreported runs that wait with what the outcome model makes of them."""
        return len(self._guesses)

    @property
    def behind(self) -> int:
        """Those that could not: the learner is too far ahead of the version that serves, which they come from."""
        return len(self._production) - len(self._fresh())

    def trains(self, version: int) -> bool:
        """Whether what `version` plays now could still be trained on after an update more."""
        behind = self.freshness.lineage.distance(version, self.freshness.head)
        return behind is not None and behind < max(1, self._settings.max_staleness)

    def take_drops(self) -> list[Dropped]:
        """What was dropped since the last call, to be recorded."""
        drops, self._drops = self._drops, []
        return drops

    def add(self, item: Attributed, now: float) -> None:
        """Take in an attributed trajectory, or a newer word on its outcome; what is here already changes nothing, nor
        does production of which nobody has said yet how it went: the store has it."""
        run = item.trajectory
        if run.source == "production":
            self._add_production(item)
        elif run.source == "sandbox" and run.group:
            self._add_member(item, now)
        else:
            self._drop("no group" if run.source == "sandbox" else run.source, item.id)

    def guess(self, item: Attributed, chance: Chance) -> None:
        """Take in what the outcome model makes of a run that waits unreported."""
        if item.trajectory.outcome is None and not self._unfit(item) and not self.held_out(item.id):
            self._guesses[item.id] = (item, chance)

    def drop_guesses(self) -> None:
        """Forget them all; their runs wait for a report, or for the next model."""
        self._guesses.clear()

    def select(self, now: float) -> list[BatchItem]:
        """Draw the next batch out of the pool; empty if it cannot be made yet."""
        self._refresh(now)
        wanted = self._settings.groups_per_batch
        if wanted == 0:
            return self._from_traffic()
        while self.whole_groups >= wanted:
            selected = self._from_groups(wanted)
            if selected:
                self._since = None
                return selected
        return self._waited(now)

    def _waited(self, now: float) -> list[BatchItem]:
        """What there is, once the rest of a batch has been waited for long enough."""
        if not self.whole_groups and self.fresh < self._settings.production_per_batch:
            self._since = None
            return []
        self._since = now if self._since is None else self._since
        if now - self._since < WAIT_SECONDS:
            return []
        self._since = None
        return self._from_groups(self._settings.groups_per_batch) or self._from_traffic()

    def _add_production(self, item: Attributed) -> None:
        run, known = item.trajectory, self._production.get(item.id)
        if known is not None and known.trajectory.outcome_revision >= run.outcome_revision:
            return
        self._production.pop(item.id, None)
        if run.outcome is not None:
            self._guesses.pop(item.id, None)
        if reason := self._unfit(item) or ("held out" if self.held_out(item.id) else ""):
            self._drop(reason, item.id)
        elif run.outcome is not None:
            self._production[item.id] = item
            if len(self._production) > POOL_PRODUCTION:
                self._drop("pool full", self._production.popitem(last=False)[0])

    def _add_member(self, item: Attributed, now: float) -> None:
        name = item.trajectory.group
        group = self._groups.setdefault(name, _Group(now))
        if item.id in group.arrived:
            return
        group.arrived.add(item.id)
        if reason := self._unfit(item) or ("no outcome" if item.trajectory.outcome is None else ""):
            self._drop(reason, item.id)
        else:
            group.members.append(item)
        if len(group.arrived) >= self._settings.group_size:
            group.whole = True
        if len(self._groups) > POOL_GROUPS:
            self._drop("pool full", *self._groups.popitem(last=False)[1].ids)

    def _refresh(self, now: float) -> None:
        """Drop what has become too old, settle groups that will not get complete."""
        if self.freshness.revision != self._settled:
            self._settled = self.freshness.revision
            self._leave()
        for name, group in list(self._groups.items()):
            if not group.whole and now - group.first >= self._settings.group_seconds:
                group.whole = True
            if group.whole and len(group.members) < MIN_GROUP:
                self._drop("group too small", *self._groups.pop(name).ids)

    def _leave(self) -> None:
        """Drop what the learner, or what serves, has left behind."""
        for key, item in list(self._production.items()):
            if gone := self._gone(item.trajectory):
                del self._production[key]
                self._drop(gone, key)
        for key, (item, _) in list(self._guesses.items()):
            if self._gone(item.trajectory):
                del self._guesses[key]
        for group in self._groups.values():
            for member in list(group.members):
                if gone := self._gone(member.trajectory):
                    group.members.remove(member)
                    self._drop(gone, member.id)

    def _from_groups(self, wanted: int) -> list[BatchItem]:
        """A batch of at most so many whole groups; empty if there was nothing to learn from in any of them."""
        whole = [self._unit(name, group.members) for name, group in self._groups.items() if group.whole]
        items: list[BatchItem] = []
        for unit in self._drawn(whole, wanted, self._settings.group_replay):
            group = self._groups.pop(unit.name)
            if group.equal:
                self._drop("equal outcomes", *group.ids)
                continue
            items += [BatchItem(attributed=member) for member in group.members]
        share = self._settings.production_share
        return [*items, *self._draw(floor(share / (1.0 - share) * len(items) + 1e-9))] if items else []

    def _from_traffic(self) -> list[BatchItem]:
        wanted = self._settings.production_per_batch
        return self._draw(wanted) if self.fresh >= max(1, wanted) else []

    def _draw(self, wanted: int) -> list[BatchItem]:
        """At most `wanted` production trajectories out of the pool: reported ones, then what the model speaks of."""
        replay = self._settings.replay_share
        reported = self._drawn([self._unit(item.id, [item]) for item in self._fresh()], wanted, replay)
        items = [self._alone(self._production.pop(unit.name)) for unit in reported]
        guesses = [self._unit(item.id, [item]) for item in self._fresh_guesses()]
        return [*items, *(self._guessed(unit) for unit in self._drawn(guesses, wanted - len(items), replay))]

    def _drawn(self, waiting: Sequence[Unit], wanted: int, replay: float) -> list[Unit]:
        units = draw(waiting, wanted, replay, self._curriculum)
        for unit in units:
            self._curriculum.touch(unit.cluster)
        return units

    def _unit(self, name: str, members: Sequence[Attributed]) -> Unit:
        runs = [member.trajectory for member in members]
        first = runs[0]
        return Unit(
            # Its kind by now: what was like nothing when it came may be like much since.
            name=name, cluster=self._curriculum.levels.of(first), tenant=first.tenant, caller=first.caller,
            task=first.task_id, version=min(run.min_version for run in runs), ended=max(run.ended for run in runs),
        )  # fmt: skip

    def _alone(self, item: Attributed) -> BatchItem:
        """A run without a group, with what was to be expected of it, and whose like it is."""
        run = item.trajectory
        return BatchItem(attributed=item, estimate=self._kinds.estimate(run), kind=self._kinds.names(run))

    def _guessed(self, unit: Unit) -> BatchItem:
        """A run with its provisional outcome: what was to be expected of it, m, moved by w (V - m).

        So its advantage is w times that of V, the expectation of the advantage that its unknown outcome has.
        """
        item, said = self._guesses.pop(unit.name)
        estimate = self._kinds.estimate(item.trajectory)
        assert estimate is not None
        outcome = estimate + said.weight * (said.chance - estimate)
        run = msgspec.structs.replace(item.trajectory, outcome=outcome, provisional=True)
        return self._alone(msgspec.structs.replace(item, trajectory=run))

    def _unfit(self, item: Attributed) -> str:
        run = item.trajectory
        if not run.trainable:
            return "untrainable"
        if run.outcome is not None and not isfinite(run.outcome):
            return "outcome not finite"
        return "unknown version" if run.min_version < 0 else self._gone(run)

    def _fresh(self) -> list[Attributed]:
        return [item for item in self._production.values() if self._fate(item.trajectory) == "fresh"]

    def _fresh_guesses(self) -> list[Attributed]:
        """Those that can be compared with something: without an estimate a guess says nothing."""
        fresh = [item for item, _ in self._guesses.values() if self._fate(item.trajectory) == "fresh"]
        return [item for item in fresh if self._kinds.estimate(item.trajectory) is not None]

    def _fate(self, run: Trajectory) -> Fate:
        # Neither has log-probs of the context that it is trained in, so no ratio makes up for its age.
        elsewhere = bool(run.experience_ids) or any(row.redacted for row in run.rows)
        most = self._settings.max_staleness
        return self.freshness.fate(run, min(GUIDED_STALENESS, most) if elsewhere else most)

    def _gone(self, run: Trajectory) -> str:
        """Why `run` will never be trained on any more; empty while it may."""
        fate = self._fate(run)
        # The sandbox can always play again: nothing of it waits for what serves.
        if fate == "fresh" or (fate == "waits" and run.source == "production"):
            return ""
        return "abandoned" if fate == "abandoned" else "stale"

    def _drop(self, reason: str, *ids: str) -> None:
        self._drops += [Dropped(id=key, reason=reason) for key in ids]
