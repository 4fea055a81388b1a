"""`Sampler`: which trajectories are worth a judge's time.

Step labels teach where outcomes differ and where something went wrong. In this order: failures; members of a group,
or of a cluster of goals, whose outcomes are mixed; goals of a new kind; and of the rest a share. What is left out
abstains: its outcome still counts.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from actors.credit.content import chance
from actors.messages import Trajectory

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Worth = Literal["failing", "mixed", "new", "share", ""]
"""Why a trajectory is judged; empty: it is not."""
SUCCESS = 0.5
NOVEL = 10
"""Trajectories of a cluster of goals until it is no longer new."""
MIXED = 0.1
"""A cluster is mixed while at least this share of its recent outcomes are successes, and as many failures."""
_RECENT = 32
"""Outcomes that are remembered of a cluster: with fewer a share of a tenth is chance."""
CLUSTERS = 4096
"""Clusters remembered; the one longest without news goes first."""
HISTORY = 5000
"""Outcomes read from the store at the start."""
_GROUPS = 4096


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is judged of all that closes."""

    share: Share = 1.0
    """Of trajectories that are nothing special. 1: everything is judged, which suits a judge that costs nothing."""


class Sampler:
    """Remembers how clusters and groups have fared, and says what is worth judging. Draws no random numbers."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._outcomes: dict[str, deque[bool]] = {}
        self._groups: OrderedDict[str, set[bool]] = OrderedDict()

    @property
    def everything(self) -> bool:
        """Nothing is left out."""
        return self._settings.share >= 1.0

    def rebuild(self, rows: Iterable[tuple[str, float | None]]) -> None:
        """Begin with these (cluster, outcome), oldest first."""
        self._seen.clear()
        self._outcomes.clear()
        for cluster, outcome in rows:
            self._note(cluster, outcome)

    def note(self, batch: Sequence[tuple[Trajectory, str]]) -> None:
        """Trajectories with their clusters are done with."""
        for trajectory, cluster in batch:
            self._note(cluster, trajectory.outcome)

    def meet(self, batch: Sequence[Trajectory]) -> None:
        """Look at the groups in a batch before its members are asked about; may be repeated."""
        for trajectory in batch:
            if trajectory.group and trajectory.outcome is not None:
                self._groups.setdefault(trajectory.group, set()).add(trajectory.outcome >= SUCCESS)
                self._groups.move_to_end(trajectory.group)
        while len(self._groups) > _GROUPS:
            self._groups.popitem(last=False)

    def worth(self, trajectory: Trajectory, cluster: str) -> Worth:
        """Why `trajectory` is to be judged."""
        if trajectory.outcome is not None and trajectory.outcome < SUCCESS:
            return "failing"
        if len(self._groups.get(trajectory.group, ())) > 1 or self._mixed(cluster):
            return "mixed"
        if self._seen.get(cluster, 0) < NOVEL:
            return "new"
        return "share" if chance(trajectory.id, "sampling") < self._settings.share else ""

    def _mixed(self, cluster: str) -> bool:
        recent = self._outcomes.get(cluster, ())
        if not recent:
            return False
        succeeded = sum(recent) / len(recent)
        return 0.0 < succeeded < 1.0 and min(succeeded, 1.0 - succeeded) >= MIXED

    def _note(self, cluster: str, outcome: float | None) -> None:
        self._seen[cluster] = self._seen.get(cluster, 0) + 1
        self._seen.move_to_end(cluster)
        if outcome is not None:
            self._outcomes.setdefault(cluster, deque(maxlen=_RECENT)).append(outcome >= SUCCESS)
        while len(self._seen) > CLUSTERS:
            gone, _ = self._seen.popitem(last=False)
            self._outcomes.pop(gone, None)
