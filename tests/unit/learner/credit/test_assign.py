"""`assign`: sets, roles, skips and the state of the running baselines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.credit import CreditSettings, Running, assign
from tests.unit.learner.maker import item

OUTCOME_ONLY = CreditSettings(alpha=0.0)


def test_adca_on_a_group_by_hand():
    credits = assign([item(1.0, "++", group="g"), item(0.0, "+-", group="g")], CreditSettings(), {})
    # outcomes -> +-1. Labels: means 1 and 0, mu 0.5, sigma^2 0.75; a = 0.5 / sigma, and (0.5, -1.5) / sigma
    unit = 0.05 / 0.75**0.5
    assert credits.advantages[0] == pytest.approx([1 + 2 * unit, 1 + unit])
    assert credits.advantages[1] == pytest.approx([-1 + unit - 3 * unit, -1 - 3 * unit])


def test_alpha_zero_gives_every_step_the_outcome():
    credits = assign([item(1.0, "+-+", group="g"), item(0.0, "-", group="g")], OUTCOME_ONLY, {})
    assert credits.advantages[0] == pytest.approx([1, 1, 1])
    assert credits.advantages[1] == pytest.approx([-1])


def test_groups_do_not_mix():
    items = [item(1.0, group="a"), item(0.0, group="a"), item(0.8, group="b"), item(0.6, group="b")]
    credits = assign(items, OUTCOME_ONLY, {})
    assert [float(a[0]) for a in credits.advantages] == pytest.approx([1, -1, 1, -1])


def test_a_group_of_equals_is_skipped_in_both_channels():
    credits = assign([item(0.0, "+", group="g"), item(0.0, "-", group="g")], CreditSettings(), {})
    assert credits.advantages == (None, None)
    assert credits.skipped == {"equal_outcomes": 2}


def test_a_group_of_equals_keeps_its_step_credit_if_asked_to():
    settings = CreditSettings(skip_equal=False)
    credits = assign([item(0.0, "+", group="g"), item(0.0, "-", group="g")], settings, {})
    assert [float(a[0]) for a in credits.advantages] == pytest.approx([0.1, -0.1])


def test_a_baseline_member_counts_in_the_mean_and_gets_nothing():
    items = [item(1.0, group="g"), item(0.0, group="g", role="baseline")]
    credits = assign(items, OUTCOME_ONLY, {})
    assert credits.advantages[0] == pytest.approx([1])
    assert credits.advantages[1] is None
    assert credits.skipped == {}


def test_an_untrainable_member_counts_in_the_mean_and_is_told():
    credits = assign([item(1.0, group="g"), item(0.0, group="g", trainable=False)], OUTCOME_ONLY, {})
    assert credits.advantages[0] == pytest.approx([1])
    assert credits.skipped == {"not_trainable": 1}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [(item(None), "no_outcome"), (item(float("nan")), "no_outcome"), (item(1.0, ""), "no_steps")],
)
def test_what_has_no_credit_is_left_out_of_everything(bad, reason):
    credits = assign([bad, item(1.0, group="g"), item(0.0, group="g")], OUTCOME_ONLY, {})
    assert credits.reasons[0] == reason
    assert credits.advantages[1] == pytest.approx([1])
    assert credits.running == {}


def test_a_lone_group_member_falls_back_to_the_running_baseline():
    credits = assign([item(1.0, group="g")], OUTCOME_ONLY, {"c": Running(0.2, 0.2)})
    assert credits.advantages[0] == pytest.approx([2.0])


def test_production_moves_the_running_baseline_of_its_cluster():
    credits = assign([item(1.0, cluster="a"), item(1.0, cluster="b")], OUTCOME_ONLY, {"a": Running(0.0, 0.0)})
    assert credits.running["a"].mean == pytest.approx(0.1)
    assert credits.running["b"].mean == 1.0
    assert credits.advantages[0] == pytest.approx([2.5])
    assert credits.reasons[1] == "zero_advantage"


def test_groups_and_baseline_members_do_not_move_the_running_baseline():
    items = [item(1.0, group="g"), item(0.0, group="g"), item(1.0, role="baseline")]
    assert assign(items, OUTCOME_ONLY, {}).running == {}


def test_leave_one_out_over_the_batch():
    settings = CreditSettings(alpha=0.0, single="leave_one_out")
    credits = assign([item(1.0, cluster="a"), item(0.0, cluster="b"), item(0.0, cluster="c")], settings, {})
    assert credits.advantages[0] == pytest.approx([1 / (2**0.5 / 3)])


def test_neighbours_take_the_cluster_and_fall_back_where_it_is_thin():
    settings = CreditSettings(alpha=0.0, single="neighbours", min_neighbours=2)
    items = [item(1.0), item(0.0, role="baseline"), item(0.0, role="baseline"), item(1.0, cluster="thin")]
    credits = assign(items, settings, {"thin": Running(0.8, 0.8)})
    assert credits.advantages[0] == pytest.approx([1 / (2**0.5 / 3)])
    assert credits.advantages[3] == pytest.approx([0.5])


def test_neighbours_that_all_ended_alike_are_skipped():
    settings = CreditSettings(single="neighbours", min_neighbours=1)
    assert assign([item(1.0), item(1.0)], settings, {}).skipped == {"equal_outcomes": 2}


def test_statistics_tell_the_channels_apart():
    credits = assign([item(1.0, "++", group="g"), item(0.0, "-?", group="g")], CreditSettings(), {})
    assert credits.statistics["steps_good"] == 0.5
    assert credits.statistics["steps_abstained"] == 0.25
    # Labels are +-1 after the z-score: the first has two of them, the second one.
    assert credits.statistics["alpha_effective"] == pytest.approx(0.15)
    assert credits.statistics["signs_agree"] == 1.0


def test_an_empty_batch_is_no_error():
    assert assign([], CreditSettings(), {}).advantages == ()


trajectories = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.text("+-?", min_size=1, max_size=4), st.sampled_from("gh ")),
    min_size=1,
    max_size=8,
)  # fmt: skip


@given(rows=trajectories, seed=st.integers(0, 99))
def test_items_may_come_in_any_order(rows, seed):
    items = [item(o, labels, id=str(i), group=g.strip()) for i, (o, labels, g) in enumerate(rows)]
    order = np.random.default_rng(seed).permutation(len(items))
    straight, mixed = assign(items, CreditSettings(), {}), assign([items[i] for i in order], CreditSettings(), {})
    for place, i in enumerate(order):
        a, b = mixed.advantages[place], straight.advantages[i]
        assert (a is None) == (b is None)
        assert a is None or a == pytest.approx(b, abs=1e-6)


@given(rows=trajectories)
def test_no_advantage_is_ever_infinite(rows):
    credits = assign([item(o, labels, group=g.strip()) for o, labels, g in rows], CreditSettings(), {})
    assert all(np.isfinite(a).all() for a in credits.advantages if a is not None)
