"""`Sampler`: which trajectories are worth a judge's time.

Failures always, members of a group whose outcomes are mixed too, and of the rest a share. What is left out abstains:
its outcome still counts.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from actors.credit.content import chance
from actors.messages import Trajectory
from actors.messages.bounded import Bounded

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
SUCCESS = 0.5
_GROUPS = 4096


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is judged of all that closes."""

    share: Share = 1.0
    """Of successes, and of runs without an outcome. 1: everything is judged, which suits a judge that costs nothing."""


class Sampler:
    """Remembers how groups have fared, and says what is worth judging. Draws no random numbers."""

    def __init__(self, settings: SamplingSettings) -> None:
        self._settings = settings
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
        return failing or mixed or chance(trajectory.id, "sampling") < self._settings.share
