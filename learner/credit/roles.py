"""Credit where several agents worked together: a role's steps are compared with the same role's, not with all.

A planner's steps and a worker's differ in kind: standardised together, the role that is judged more kindly looks good
and the other one bad, whatever they did. So labels are standardised per role, and where a group's outcomes are
compared, a role is compared over the trajectories that it had a part in. What one agent did alone is as without roles.

Source: agent-wise normalisation of group advantages (Dr. MAS, arXiv 2602.08847); the label channel is treated alike.
"""

from collections.abc import Sequence

import numpy as np

from actors.messages import Trajectory
from learner.credit import adca
from learner.credit.outcomes import Floats, group

Masks = dict[str, list[adca.Mask]]
"""By role, per trajectory `(K_i,)`: which steps are that role's."""
ALONE = ""
"""Name for all roles that stand in no trajectory with another one: names tell nothing of them."""


def role_masks(trajectories: Sequence[Trajectory]) -> Masks | None:
    """The steps of each role among trajectories that are compared with each other; None where none has several."""
    roles = [[step.role for step in trajectory.steps] for trajectory in trajectories]
    together = {role for own in roles if len(set(own)) > 1 for role in own}
    if not together:
        return None
    named = [[role if role in together else ALONE for role in own] for own in roles]
    every = sorted({role for own in named for role in own})
    return {role: [np.array([one == role for one in own], dtype=np.bool_) for own in named] for role in every}


def standardised(
    values: Sequence[Floats],
    judged: Sequence[adca.Mask],
    weights: Sequence[float],
    masks: Masks | None,
    kinds: Sequence[str] | None,
) -> list[Floats]:
    """`adca.standardise` per role, put together again; without `masks` that of all steps together."""
    if masks is None:
        return adca.standardise(values, judged, weights, kinds=kinds)
    found = [np.zeros(len(own), dtype=np.float64) for own in values]
    for own in masks.values():
        of_role = [mask & steps for mask, steps in zip(judged, own, strict=True)]
        scores = adca.standardise(values, of_role, weights, kinds=kinds)
        # Off the role's steps they are 0.
        found = [total + score for total, score in zip(found, scores, strict=True)]
    return found


def outcomes_by_role(outcomes: Floats, whole: Floats, masks: Masks) -> list[Floats]:
    """What the outcome is worth to each step of a group's trajectories, `(K_i,)` each; a role that only one of them has
    keeps the advantage of the `whole`."""
    found = [np.full(len(steps), worth) for steps, worth in zip(next(iter(masks.values())), whole, strict=True)]
    for own in masks.values():
        members = [i for i, steps in enumerate(own) if steps.any()]
        if 1 < len(members) < len(own):
            for i, worth in zip(members, group(outcomes[members]), strict=True):
                found[i][own[i]] = worth
    return found
