"""`Sampler`: which trajectories are worth a judge's time.

Failures always, members of a group whose outcomes are mixed too, and of the rest a share. What is left out abstains:
its outcome still counts.
"""

from collections.abc import Sequence

from actors.credit.content import chance
from actors.messages import Trajectory
from actors.messages.bounded import Bounded

SUCCESS = 0.5
_GROUPS = 4096


class Sampler:
    """Remembers how groups have fared, and says what is worth judging: of the rest `share`. Draws no random numbers."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._groups: Bounded[str, set[bool]] = Bounded(_GROUPS)

    def meet(self, batch: Sequence[Trajectory]) -> None:
        """Look at the groups in a batch before its members are asked about; may be repeated."""
        for trajectory in batch:
            if trajectory.group and trajectory.outcome is not None:
                known = self._groups.get(trajectory.group, set())
                self._groups[trajectory.group] = known | {trajectory.outcome >= SUCCESS}

    def worth(self, trajectory: Trajectory) -> bool:
        """Whether `trajectory` is to be judged."""
        failing = trajectory.outcome is not None and trajectory.outcome < SUCCESS
        mixed = len(self._groups.get(trajectory.group, ())) > 1
        return failing or mixed or chance(trajectory.id, "sampling") < self._share
