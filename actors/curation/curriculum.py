"""The curriculum: which kinds of task the sandbox plays next, and which cluster of waiting trajectories goes first.

    attributed trajectories  ->  [curator] -> Curriculum <- [rollout]: a plan for each round of tasks

A round has three parts. *Focus*: clusters that traffic asks for, by learning gain; what traffic fails at (`urge`)
weighs more. *Replay*: other clusters, the one attempted longest ago first: earlier tasks are attempted again, since old
tokens are past `max_staleness`. *Mix*: tasks as the environment draws them.
"""

from collections import Counter, deque
from collections.abc import Mapping
from math import ceil

from actors.curation.bandit import CLUSTERS, Gains
from actors.kinds.kinds import Kinds
from actors.kinds.levels import Levels
from actors.messages import Trajectory
from actors.messages.bounded import Bounded

DEMAND = 1024
"""Newest production trajectories that say what traffic asks for."""
_LEAST_DEMAND = 0.01
"""Share of the most wanted cluster's demand below which nobody asks for a cluster."""
_RAISED = 2.0
"""Factor of the weight of a cluster that traffic fails at."""
_URGED = 256
"""Outcomes of the sandbox until the weight of an urged cluster is as before."""


class Curriculum:
    """What the outcomes so far say about what to train next. Bounded; deterministic in what it was told."""

    def __init__(
        self,
        kinds: Kinds | None = None,
        *,
        replay_share: float = 0.25,
        mix_share: float = 0.125,
    ) -> None:
        self._replay_share, self._mix_share = replay_share, mix_share
        self.kinds = kinds or Kinds()
        self.clear()

    @property
    def levels(self) -> Levels:
        """Which cluster a goal, or a run, is of."""
        return self.kinds.levels

    def clear(self) -> None:
        """Forget all outcomes."""
        self.gains = Gains()
        """Of every cluster that had an outcome."""
        self._asked: deque[str] = deque(maxlen=DEMAND)
        """Clusters of what traffic asked for."""
        self._last: Bounded[str, int] = Bounded(CLUSTERS)
        self._turn = 0
        self._urged: Bounded[str, int] = Bounded(CLUSTERS)

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

    def observe(self, source: str, cluster: str, outcome: float) -> None:
        """An outcome of a production or sandbox trajectory."""
        if not cluster or not self.gains.observe(cluster, outcome):
            return
        if source != "sandbox":
            self._asked.append(cluster)
        elif cluster in self._urged:
            self._urged[cluster] -= 1
            if not self._urged[cluster]:
                del self._urged[cluster]

    def urge(self, cluster: str) -> None:
        """Traffic fails at `cluster`: it weighs more until the sandbox has had its share of attempts at it."""
        self._urged[cluster] = _URGED

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
        planned = Counter(focus)
        left -= focus
        while replay and (others := [name for name in left if name != leader and left[name] > 0]):
            # What the focus has anyway comes last; among the rest whoever has waited longest.
            name = min(others, key=lambda name: (planned[name], self.last(name), name))
            planned[name] += 1
            left[name] -= 1
            replay -= 1
            self.touch(name)
        planned.update(self._focus(replay, left))
        for name in focus:
            self.touch(name)
        return dict(planned)

    def _focus(self, count: int, left: Mapping[str, int]) -> Counter[str]:
        """At most `count` slots to the clusters that are asked for, in proportion to their index, and of each no more
        than are `left`."""
        asked = Counter(self._asked)
        most = max((asked[name] for name in left), default=0)
        index: dict[str, float] = {}
        for name in left:
            share = asked[name] / most if most and name not in self._urged else 1.0
            if share >= _LEAST_DEMAND:
                index[name] = self.gains.index(name, weight=share * self.weight(name))
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
