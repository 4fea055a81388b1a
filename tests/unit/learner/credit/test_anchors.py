"""Anchor groups: what a state is, and steps compared within one."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import Step, Trajectory
from learner.credit import CreditSettings, assign
from learner.credit.anchors import anchor_advantages, anchor_keys, step_returns
from tests.unit.learner.maker import item


def run(*observations, goal="book a flight"):
    steps = tuple(Step(exchange_id=str(i), observation=text) for i, text in enumerate(observations))
    return Trajectory(id="t", steps=steps, started=0.0, ended=1.0, goal=goal)


def seen(outcome, *observations, **kwargs):
    """An item of group g whose steps were all abstained on; `observations` are those after each step."""
    plain = item(outcome, "?" * len(observations), group="g", **kwargs)
    steps = tuple(Step(exchange_id=str(i), observation=text) for i, text in enumerate(observations))
    trajectory = msgspec.structs.replace(plain.attributed.trajectory, steps=steps, goal="book a flight")
    attributed = msgspec.structs.replace(plain.attributed, trajectory=trajectory)
    return msgspec.structs.replace(plain, attributed=attributed)


def test_a_state_is_the_goal_and_what_was_seen_last():
    first, second = anchor_keys(run("menu", "seats", "")), anchor_keys(run("menu", "error", "menu", ""))
    assert first[:2] == second[:2]
    assert second[3] == first[1] != first[2]
    assert anchor_keys(run("menu", goal="cancel")) != first[:1]


def test_a_step_that_nothing_was_seen_before_has_no_anchor():
    assert anchor_keys(run("", "menu", ""))[1] == ""
    assert anchor_keys(run("menu", goal="")) == [""]


def test_where_the_goal_ends_is_part_of_the_state():
    assert anchor_keys(run("x", "", goal="ab"))[1] != anchor_keys(run("bx", "", goal="a"))[1]


def test_broken_text_has_a_key_too():
    assert anchor_keys(run("\ud800", ""))[1]


def test_step_returns_by_hand():
    assert step_returns(2.0, 3, 0.5).tolist() == [0.5, 1.0, 2.0]
    assert step_returns(2.0, 3, 0.0).tolist() == [0.0, 0.0, 2.0]


def test_steps_of_one_state_are_standardised_by_hand():
    keys = [["a", "b"], ["a", "a", "c"], ["", "b"]]
    returns = [np.array([4.0, 5.0]), np.array([1.0, 1.0, 7.0]), np.array([9.0, 5.0])]
    found = anchor_advantages(keys, returns, "std")
    # State a: 4, 1, 1 with mean 2 and deviation sqrt(2). State b: 5 and 5, nothing to tell. c and "" are alone.
    assert found[0] == pytest.approx([2 / 2**0.5, 0])
    assert found[1] == pytest.approx([-1 / 2**0.5, -1 / 2**0.5, 0])
    assert found[2].tolist() == [0, 0]
    assert anchor_advantages(keys, returns, "none")[0] == pytest.approx([2, 0])


steps = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.integers(0, 4)), min_size=1, max_size=5)
worlds = st.lists(steps, min_size=1, max_size=5)


@given(rows=worlds, shift=st.floats(-3, 3), scale=st.floats(0.5, 9), seed=st.integers(0, 99))
def test_shift_scale_and_order_of_returns_change_nothing(rows, shift, scale, seed):
    keys = [[key for key, _ in row] for row in rows]
    returns = [np.array([float(value) for _, value in row]) for row in rows]
    straight = anchor_advantages(keys, returns, "std")
    order = np.random.default_rng(seed).permutation(len(rows))
    mixed = anchor_advantages([keys[i] for i in order], [returns[i] * scale + shift for i in order], "std")
    for place, i in enumerate(order):
        assert mixed[place] == pytest.approx(straight[i], abs=1e-6)


@given(rows=worlds)
def test_advantages_of_a_state_sum_to_nothing(rows):
    keys = [[key for key, _ in row] for row in rows]
    found = anchor_advantages(keys, [np.array([float(value) for _, value in row]) for row in rows], "std")
    for state in "ab":
        own = [value for row, out in zip(keys, found, strict=True) for key, value in zip(row, out, strict=True)
               if key == state]  # fmt: skip
        assert sum(own) == pytest.approx(0, abs=1e-9)


def test_gigpo_on_a_group_by_hand():
    settings = CreditSettings(alpha=0.0, anchor_weight=1.0, anchor_discount=0.5)
    credits = assign([seen(1.0, "menu", ""), seen(0.0, "menu", "")], settings)
    # Outcomes +-1. Both steps were met by both: returns 0.5 and 0, then 1 and 0, so +-1 again.
    assert credits.advantages[0] == pytest.approx([2, 2])
    assert credits.advantages[1] == pytest.approx([-2, -2])
    assert credits.statistics["steps_anchored"] == 1.0


def test_paths_that_part_are_told_apart_by_what_followed():
    settings = CreditSettings(alpha=0.0, anchor_weight=0.5, anchor_discount=0.5)
    credits = assign([seen(1.0, "menu", ""), seen(1.0, "menu", "menu", ""), seen(0.0, "end")], settings)
    # After the menu: 1 to go on at once, 0.5 to look again, then 1; mean 5/6, deviation sqrt(1/18).
    outcome = (1 / 3) / (2 / 9) ** 0.5
    looked = 0.5 * -(1 / 3) / (1 / 18) ** 0.5
    assert credits.advantages[1][1] == pytest.approx(outcome + looked)
    assert credits.advantages[0][1] == pytest.approx(outcome - looked / 2)


def test_groups_of_equal_outcomes_have_no_step_credit_of_this_kind_either():
    settings = CreditSettings(anchor_weight=1.0)
    assert assign([seen(1.0, "menu", ""), seen(1.0, "menu", "menu", "")], settings).skipped == {"equal_outcomes": 2}
