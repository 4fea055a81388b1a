"""Which credit: the choices that `assign` takes, with the paper's values as defaults."""

from typing import Annotated, Literal

import msgspec

Grouped = Literal["group", "leave_one_out"]
Single = Literal["running", "leave_one_out", "neighbours"]
Horizon = Literal["none", "horizon"]


class CreditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How outcomes and step labels become advantages."""

    alpha: Annotated[float, msgspec.Meta(ge=0)] = 0.1
    """Weight of the step labels against the outcome; 0 is outcome-only GRPO."""
    h: Horizon = "horizon"
    """`none`: the paper's weight of 1 at any length. `horizon`: min(1, horizon / judged steps), see `adca.horizon`."""
    horizon: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Judged steps up to which `h="horizon"` leaves the paper's weight alone."""
    grouped: Grouped = "group"
    """Baseline of trajectories that belong to a group with at least one other member."""
    single: Single = "running"
    """Baseline of all others, production's usual case."""
    skip_equal: bool = True
    """Leave out groups whose outcomes are all equal, in both channels."""
    running_decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.9
    """Share of the old value when a batch moves a cluster's running mean."""
    running_std: Annotated[float, msgspec.Meta(ge=0)] = 0.4
    """What outcomes are divided by under the running baseline; 0 takes the cluster's own running deviation."""
    running_clusters: Annotated[int, msgspec.Meta(ge=1)] = 4096
    """Clusters remembered; the one that was longest without news goes first."""
    min_neighbours: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Other trajectories of its cluster that `neighbours` needs; with fewer it falls back to the running mean."""
