"""Credit per role: a planner is compared with planners, a worker with workers, and one agent alone as ever."""

import random

import msgspec
import numpy as np
import pytest

from learner.credit import CreditSettings, assign
from tests.unit.learner.maker import acted, expecting, item

OUTCOME_ONLY = CreditSettings(alpha=0.0)


def advantages(items, settings=OUTCOME_ONLY):
    return assign(items, settings).advantages


def of_labels(items):
    """What the labels of a group add to its outcomes, per step."""
    with_labels, without = advantages(items, CreditSettings()), advantages(items)
    return [one - other for one, other in zip(with_labels, without, strict=True)]


def test_a_roles_labels_are_compared_with_the_same_roles_alone():
    # The judge is kind to planners and hard on workers: of each role one did better than the other.
    batch = [
        acted(item(1.0, "+++-", id="a", group="g"), "p", "p", "w", "w"),
        acted(item(0.0, "+---", id="b", group="g"), "p", "p", "w", "w"),
    ]
    found = of_labels(batch)
    # planners: means 1 and 0, mu 0.5, sigma^2 1 - 0.25; workers: means 0 and -1, the same about -0.5
    unit = 1 / 0.75**0.5
    assert found[0] == pytest.approx([0.5 * unit, 0.5 * unit, 1.5 * unit, -0.5 * unit])
    assert found[1] == pytest.approx([0.5 * unit, -1.5 * unit, -0.5 * unit, -0.5 * unit])


def test_a_roles_outcome_is_compared_over_the_trajectories_that_it_had_a_part_in():
    # The worker is only called for in hard cases, which end worse: that is not its fault.
    batch = [
        acted(item(1.0, "++", id="a", group="g"), "p", "p"),
        acted(item(1.0, "++", id="b", group="g"), "p", "p"),
        acted(item(0.5, "++", id="c", group="g"), "p", "w"),
        acted(item(0.0, "++", id="d", group="g"), "p", "w"),
    ]
    found = advantages(batch, OUTCOME_ONLY)
    outcomes = np.array([1.0, 1.0, 0.5, 0.0])
    whole = (outcomes - outcomes.mean()) / outcomes.std()
    assert [float(each[0]) for each in found] == pytest.approx(whole.tolist())
    assert [float(found[2][1]), float(found[3][1])] == pytest.approx([1.0, -1.0])
    assert float(whole[2]) < 0, "compared with all, the better worker would be blamed"


@pytest.mark.parametrize("naming", ["none", "one", "one each"])
def test_with_one_role_a_trajectory_everything_is_exactly_as_without(naming):
    rng = random.Random("roles")
    batch = [
        item(
            rng.choice([0.0, 0.5, 1.0]), "".join(rng.choices("+-?", k=rng.randint(1, 6))), id=str(n),
            group=rng.choice(["", "g", "h"]), cluster=rng.choice("cd"), trainable=rng.random() < 0.7,
        )
        for n in range(24)
    ]  # fmt: skip
    named = {"none": lambda n: "", "one": lambda n: "desk#1", "one each": lambda n: f"desk#{n}"}[naming]
    # One agent by name: else those without a group would be of as many agents as there are roles.
    batch = [msgspec.structs.replace(each, kind=("desk", each.attributed.cluster)) for each in batch]
    roles = [acted(each, *[named(n)] * len(each.attributed.trajectory.steps)) for n, each in enumerate(batch)]
    settings = CreditSettings(alpha=0.7, discount=1.0)
    before, after = (assign(expecting(each, {"c": 0.4}), settings) for each in (batch, roles))
    assert after.left == before.left
    assert after.statistics == before.statistics
    for mine, theirs in zip(after.advantages, before.advantages, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or np.array_equal(mine, theirs)


def test_who_worked_alone_among_teams_is_compared_with_the_same_role_or_with_others_alone():
    batch = [
        acted(item(1.0, "+-", id="a", group="g"), "p", "w"),
        acted(item(0.0, "-", id="b", group="g"), "p"),
        acted(item(1.0, "+", id="c", group="g"), "x"),
        acted(item(0.0, "-", id="d", group="g"), "y"),
    ]
    found = of_labels(batch)
    assert [float(each[0]) for each in found] == pytest.approx([1, -1, 1, -1])
    assert float(found[0][1]) == 0.0, "a worker without another one"
    assert advantages(batch)[0] == pytest.approx([1.0, 1.0]), "and with the outcome of the whole"


def test_a_team_of_production_without_a_group_is_standardised_per_role_too():
    batch = [acted(item(1.0, "+-", id="a"), "p", "w"), acted(item(0.0, "--", id="b"), "p", "w")]
    found = of_labels(expecting(batch, {"c": 0.5}))
    assert found[0] == pytest.approx([1, 0])
    assert found[1] == pytest.approx([-1, 0])
