"""The curriculum: which kinds of task the sandbox plays next, and which cluster of waiting trajectories goes first.

    attributed trajectories  ->  [curator] -> Curriculum <- [rollout]: a plan for each round of tasks

A round has three parts. *Focus*: clusters that traffic asks for, by learning gain; what traffic fails at (`urge`)
weighs more. *Replay*: other clusters, the one attempted longest ago first: earlier tasks are attempted again, since old
tokens are past `max_staleness`. *Mix*: tasks as the environment draws them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

from actors.curation.bandit import Gains
from actors.kinds.levels import Levels
from actors.messages import Trajectory
from actors.messages.bounded import Bounded

DEMAND_HORIZON = 512
"""Production trajectories over which demand is discounted."""
_LEAST_DEMAND = 0.01
"""Share of the most wanted cluster's demand below which nobody asks for a cluster."""
_RESCALE = 1e12
_RAISED = 2.0
"""Factor of the weight of a cluster that traffic fails at."""
_URGED = 256
"""Outcomes of the sandbox until the weight of an urged cluster is as before."""


class Curriculum:
    """What the outcomes so far say about what to train next. Bounded; deterministic in what it was told."""

    def __init__(self, *, replay_share: float = 0.25, mix_share: float = 0.125, clusters: int = 1024) -> None:
        self._replay_share, self._mix_share, self._limit = replay_share, mix_share, clusters
        self.levels = Levels()
        """Which cluster a goal, or a run, is of."""
        self.counts: Counter[str] = Counter()
        """Planned tasks: focus, replay, mix; and replay_unknown: replay that no other cluster was known for."""
        self._clear()

    def _clear(self) -> None:
        self.gains = Gains(self._limit)
        """Of every cluster that had an outcome."""
        self._demand: dict[str, float] = {}
        self._unit = 1.0
        self._last: Bounded[str, int] = Bounded(self._limit)
        self._turn = 0
        self._urged: Bounded[str, int] = Bounded(self._limit)

    def kind(self, goal: str) -> str:
        """The cluster of a task's `goal`."""
        return self.levels.kind(goal)

    def failed(self, run: Trajectory) -> str:
        """The neighbourhood of the goal at which `run` failed; it is learned, so that the next like it is found."""
        self.levels.tell(run)
        return self.levels.alike(run.goal)

    def saw(self, run: Trajectory, *, known: bool = False) -> None:
        """A production or sandbox trajectory with an outcome.

        Args:
            known: its outcome was told before; only its goal may be new.
        """
        self.levels.tell(run)
        if run.outcome is not None and not known:
            self.observe(run.source, self.levels.of(run), run.outcome)

    def rebuild(self, outcomes: Iterable[tuple[str, str, float]]) -> None:
        """Forget all outcomes and take in (source, cluster, outcome), oldest first."""
        self._clear()
        for source, cluster, outcome in outcomes:
            self.observe(source, cluster, outcome)
            self.touch(cluster)

    def observe(self, source: str, cluster: str, outcome: float) -> None:
        """An outcome of a production or sandbox trajectory."""
        if not cluster or not self.gains.observe(cluster, outcome):
            return
        if source == "sandbox":
            if cluster in self._urged:
                self._urged[cluster] -= 1
                if not self._urged[cluster]:
                    del self._urged[cluster]
        else:
            self._asked_for(cluster)

    def _asked_for(self, cluster: str) -> None:
        # What is new weighs more, instead of all that is old less: one sum a trajectory.
        self._unit *= 1.0 + 1.0 / DEMAND_HORIZON
        self._demand[cluster] = self._demand.get(cluster, 0.0) + self._unit
        if self._unit > _RESCALE:
            self._demand = {name: value / self._unit for name, value in self._demand.items()}
            self._unit = 1.0
        if len(self._demand) > self._limit:
            del self._demand[min(self._demand, key=lambda name: (self._demand[name], name))]

    def urge(self, cluster: str) -> None:
        """Traffic fails at `cluster`: it weighs more until the sandbox has had its share of attempts at it."""
        self._urged[cluster] = _URGED
        self.counts["urged"] += 1

    def weight(self, cluster: str) -> float:
        """Factor of the worth of `cluster`: above 1 for one that traffic fails at."""
        return _RAISED if cluster in self._urged else 1.0

    def index(self, cluster: str) -> float:
        """Where `cluster` stands in the order of what to play next, highest first."""
        return self.gains.index(cluster, weight=self.weight(cluster))

    def touch(self, cluster: str) -> None:
        """`cluster` is in a batch, or in a plan for one."""
        self._turn += 1
        self._last[cluster] = self._turn

    def last(self, cluster: str) -> int:
        """When `cluster` was last touched, in turns; 0 for never."""
        return self._last.get(cluster, 0)

    def plan(self, count: int, offered: Mapping[str, int]) -> Mapping[str, int]:
        """Tasks by cluster for a round of `count`; what is missing from `count` is the environment's to choose.

        Args:
            offered: how many tasks there are to be had of each cluster; no more are planned.
        """
        left = Counter({name: number for name, number in offered.items() if number > 0})
        replay = slots(self._replay_share, count) if left else 0
        mix = min(count - replay, slots(self._mix_share, count)) if left else count
        focus = self._focus(count - replay - mix, left)
        leader = max(focus, key=lambda name: (focus[name], name)) if focus else ""
        planned, replayed = Counter(focus), 0
        left -= focus
        others = [name for name in left if name != leader]
        for _ in range(replay):
            others = [name for name in others if left[name] > 0]
            if not others:
                break
            # What the focus has anyway comes last; among the rest whoever has waited longest.
            name = min(others, key=lambda name: (planned[name], self.last(name), name))
            planned[name] += 1
            left[name] -= 1
            replayed += 1
            self.touch(name)
        if replayed < replay:
            self.counts["replay_unknown"] += replay - replayed
            planned.update(self._focus(replay - replayed, left))
        for name in focus:
            self.touch(name)
        self.counts.update(focus=planned.total() - replayed, replay=replayed, mix=max(0, count - planned.total()))
        return dict(planned)

    def _focus(self, count: int, left: Mapping[str, int]) -> Counter[str]:
        """At most `count` slots to the clusters that are asked for, in proportion to their index, and of each no more
        than are `left`."""
        most = max((self._demand.get(name, 0.0) for name in left), default=0.0)
        wanted = {name: self._demand.get(name, 0.0) / most if most else 1.0 for name in left}
        wanted = {
            name: max(share, float(self.weight(name) > 1.0)) * self.weight(name) for name, share in wanted.items()
        }
        index = {name: self.gains.index(name, weight=share) for name, share in wanted.items() if share >= _LEAST_DEMAND}
        planned: Counter[str] = Counter()
        for _ in range(count):
            index = {name: worth for name, worth in index.items() if planned[name] < left[name]}
            if not index:
                break
            planned[max(index, key=lambda name: (index[name] / (1 + planned[name]), name))] += 1
        return planned


def slots(share: float, count: int) -> int:
    """`share` of `count`, rounded, a half down: one of two is no quarter."""
    return max(0, min(count, ceil(share * count - 0.5 - 1e-9)))
