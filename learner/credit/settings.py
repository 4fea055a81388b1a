"""Which credit: the choices that `assign` takes. Formulas: docs/how-it-learns.md; why these defaults: docs/measured.md.

AgentEvolver's own values are alpha 0.1, discount 1 and h "none".
"""

from typing import Annotated, Literal

import msgspec

Estimator = Literal["grpo", "rloo", "reinforce++", "reinforce++_baseline"]
Single = Literal["estimate", "leave_one_out", "neighbours", "sandbox"]
Scheme = Literal["decouple", "allocation"]
Horizon = Literal["none", "horizon"]
Schedule = Literal["constant", "cosine", "stop"]
Fusion = Literal["last_step", "all_steps", "process_only"]
Skip = Literal["none", "equal", "small", "negative"]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class CreditSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How outcomes and step labels become advantages."""

    alpha: NotNegative = 1.0
    """Weight of the step labels against the outcome; 0 is outcome-only GRPO. With `discount = 1` labels add up over the
    steps, and 0.1 is the paper's."""
    alpha_schedule: Schedule = "constant"
    """`cosine`: from alpha down to alpha_min at alpha_updates. `stop`: alpha for alpha_updates updates, then 0."""
    alpha_min: NotNegative = 0.0
    """Where the cosine ends and stays."""
    alpha_updates: AtLeastOne = 100
    """Length of the schedule, in updates since the warm start."""
    h: Horizon = "none"
    """`none`: weight 1 at any length. `horizon`: min(1, horizon / judged steps), a bound on what adds up with
    `discount = 1`, see `adca.horizon`."""
    horizon: AtLeastOne = 8
    """Judged steps up to which `h="horizon"` leaves the paper's weight alone."""
    discount: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Of a label, a step back. 0: each label is its own step's alone. 1: a step answers for all that follows it, the
    paper's sums; alpha then has to be about 0.1, and `h = "horizon"` for long runs."""
    scheme: Scheme = "decouple"
    """What a label is before it is standardised. `decouple`: +1 or -1. `allocation`: its share of a whole that has the
    outcome's sign, see `adca.allocation`."""
    consistent: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """`allocation`: weight of steps that agree with the outcome, GOOD in a success and BAD in a failure."""
    contrary: NotNegative = 0.2
    """`allocation`: weight of the others."""
    success_above: float = 0.5
    """Outcomes above it are successes, for `allocation` and `skip = "negative"`."""
    fusion: Fusion = "last_step"
    """Where the outcome is added before the suffix sums: at the last step, at every step (whose sums grow with the
    length), or nowhere."""
    length_weight: Literal["none", "inverse_sqrt"] = "none"
    """`inverse_sqrt`: a trajectory's advantages, the outcome's part too, times 1 / sqrt(steps)."""
    anchor_weight: NotNegative = 0.0
    """Weight of advantages among steps that were taken from the same state, see `anchors`; GiGPO's is 1, 0 is off."""
    anchor_discount: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95
    """Discount a step of the returns that are compared there."""
    anchor_scale: Literal["std", "none"] = "std"
    """What those are divided by after centring: their deviation, or nothing."""

    estimator: Estimator = "grpo"
    """From outcomes to one advantage a trajectory. `grpo`: less the mean of the group, over its deviation. `rloo`: less
    the mean of the others, not divided. `reinforce++`: less the mean of the batch, over its deviation, without groups.
    `reinforce++_baseline`: less the mean of the group, then whitened over the batch."""
    single: Single = "estimate"
    """Baseline of trajectories without a group, production's usual case; not used by `reinforce++`."""
    skip: Skip = "equal"
    """What is left out in both channels. `equal`: sets whose outcomes are all equal, and of labels of runs without a
    group what goes beyond their outcome. `negative`: sets without a success. `small`: trajectories whose outcome's
    advantage is below skip_below, either side of 0."""
    skip_below: NotNegative = 1e-8
    """See `skip`."""
    single_std: NotNegative = 0.4
    """What outcomes are divided by under the `estimate` and the `sandbox` baseline; 0 takes the deviation that goes
    with the estimate, or that of the sandbox attempts."""
    min_neighbours: AtLeastOne = 3
    """Trajectories to compare with that `neighbours` and `sandbox` need; with fewer they take the estimate."""
