"""Outcome baselines against hand-computed numbers and their invariances."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from learner.credit import Running
from learner.credit.baselines import group, leave_one_out, moved, neighbours, running, sandbox
from learner.credit.kin import AGENT, CLUSTER, TENANT, kin
from tests.unit.learner.maker import item

outcomes = hnp.arrays(np.float64, st.integers(2, 12), elements=st.integers(0, 20).map(lambda x: x / 20))


def test_group_by_hand():
    # mean 0.25, population deviation sqrt(3)/4
    assert group(np.array([1.0, 0, 0, 0])) == pytest.approx([3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)])


def test_leave_one_out_by_hand():
    # others' means: 0 for the first, 1/3 for the rest; deviation sqrt(3)/4
    deviation = 3**0.5 / 4
    expected = [1 / deviation, *[-1 / 3 / deviation] * 3]
    assert leave_one_out(np.array([1.0, 0, 0, 0])) == pytest.approx(expected)


def test_rloo_by_hand_is_not_divided():
    assert leave_one_out(np.array([1.0, 0, 0, 0]), scaled=False) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_the_mean_alone_by_hand():
    assert group(np.array([1.0, 0, 0, 0]), scaled=False) == pytest.approx([0.75, -0.25, -0.25, -0.25])


@pytest.mark.parametrize("baseline", [group, leave_one_out])
@pytest.mark.parametrize("n", [0, 1])
def test_what_has_no_company_has_no_advantage(baseline, n):
    assert baseline(np.full(n, 0.7)).tolist() == [0.0] * n


@pytest.mark.parametrize("baseline", [group, leave_one_out])
def test_equal_outcomes_have_no_advantage(baseline):
    assert not baseline(np.full(5, 0.7)).any()


@pytest.mark.parametrize("baseline", [group, leave_one_out])
@given(values=outcomes, shift=st.floats(-5, 5), scale=st.floats(0.5, 20))
def test_shift_and_scale_change_nothing(baseline, values, shift, scale):
    assert baseline(values * scale + shift) == pytest.approx(baseline(values), abs=1e-6)


@pytest.mark.parametrize("baseline", [group, leave_one_out])
@given(values=outcomes, seed=st.integers(0, 99))
def test_members_may_come_in_any_order(baseline, values, seed):
    order = np.random.default_rng(seed).permutation(len(values))
    assert baseline(values[order]) == pytest.approx(baseline(values)[order], abs=1e-9)


@given(values=outcomes)
def test_advantages_of_a_group_sum_to_nothing(values):
    assert group(values).sum() == pytest.approx(0, abs=1e-7)
    assert leave_one_out(values).sum() == pytest.approx(0, abs=1e-7)


def test_neighbours_compare_within_a_cluster_and_need_enough():
    values, decided = neighbours(np.array([1.0, 0, 0, 1, 1]), ["a", "a", "a", "b", ""], minimum=2)
    assert decided.tolist() == [True, True, True, False, False]
    assert values[:3] == pytest.approx(leave_one_out(np.array([1.0, 0, 0])))
    assert not values[3:].any()


def test_sandbox_attempts_by_hand():
    attempts = np.array([1.0, 1, 0, 0])  # mean 0.5, deviation 0.5
    assert sandbox(1.0, attempts, 0.4) == pytest.approx(1.25)
    assert sandbox(1.0, attempts, 0.0) == pytest.approx(1.0)
    assert sandbox(1.0, attempts, 0.4, scaled=False) == pytest.approx(0.5)


def test_one_failure_against_attempts_that_all_succeeded_is_no_shock():
    assert sandbox(0.0, np.ones(8), 0.0) == pytest.approx(-10.0)  # the least deviation is 0.1


@given(values=outcomes, shift=st.floats(-5, 5), scale=st.floats(0.5, 20))
def test_differences_scale_with_the_outcomes_where_nothing_divides(values, shift, scale):
    for baseline in (group, leave_one_out):
        moved_by = baseline(values * scale + shift, scaled=False)
        assert moved_by == pytest.approx(scale * baseline(values, scaled=False), abs=1e-6)


NAMES = ("new", "agent:a", "tenant:t")


def test_running_by_hand():
    past = {"a": Running(0.25, 0.25)}
    # a: (1 - 0.25) / 0.4; nothing is known of b, whose others have the means 0.5 and 1
    values, remembered = running(np.array([1.0, 1, 0]), [("a",), ("b",), ("b",)], past, 0.4)
    assert values == pytest.approx([1.875, 1.25, -2.5])
    assert remembered.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        ({"new": Running(0.2, 0.2), "agent:a": Running(0.4, 0.4), "tenant:t": Running(0.6, 0.6)}, 2.0),
        ({"agent:a": Running(0.4, 0.4), "tenant:t": Running(0.6, 0.6)}, 1.5),
        ({"tenant:t": Running(0.6, 0.6)}, 1.0),
        ({"agent:other": Running(0.4, 0.4)}, 2.5),
    ],
)
def test_the_closest_kin_with_a_past_is_the_baseline_and_then_the_batch(past, expected):
    values, remembered = running(np.array([1.0, 0.0]), [NAMES, ("x", "agent:x", "tenant:x")], past, 0.4)
    assert values[0] == pytest.approx(expected)
    assert bool(remembered[0]) == ("agent:other" not in past)


def test_running_deviation_of_the_cluster_itself():
    past = {"a": Running(0.5, 0.5)}  # variance 0.25
    assert running(np.array([1.0]), [("a",)], past, 0.0)[0] == pytest.approx([1.0])


def test_the_deviation_of_the_others_has_a_floor_as_well():
    # 1 against 0 and 0.5, deviation 0.25; 0 against 1 and 0.5, the same; 0.5 against 1 and 0
    values, _ = running(np.array([1.0, 0, 0.5]), [("a",), ("b",), ("c",)], {}, 0.0)
    assert values == pytest.approx([3, -3, 0])
    assert running(np.array([1.0, 0]), [("a",), ("b",)], {}, 0.0)[0] == pytest.approx([10, -10])


def test_a_lone_first_trajectory_has_nothing_to_be_compared_with():
    values, remembered = running(np.array([1.0]), [NAMES], {}, 0.4)
    assert (values.tolist(), remembered.tolist()) == ([0.0], [False])


@given(values=outcomes, place=st.integers(0, 11), other=st.integers(0, 20).map(lambda x: x / 20))
def test_no_outcome_is_in_its_own_baseline(values, place, other):
    i = place % len(values)
    changed = values.copy()
    changed[i] = other
    names = [(f"goal {n}", "agent:a", "tenant:t") for n in range(len(values))]
    before, after = running(values, names, {}, 0.4)[0][i], running(changed, names, {}, 0.4)[0][i]
    assert after - before == pytest.approx((other - values[i]) / 0.4, abs=1e-9)


def test_the_running_mean_moves_by_a_tenth_of_the_batch_mean():
    after = moved(np.array([1.0, 0.0]), [("a",), ("a",)], {"a": Running(0.1, 0.2)}, 0.9, 10)
    assert after["a"] == Running(pytest.approx(0.9 * 0.1 + 0.05), pytest.approx(0.9 * 0.2 + 0.05))


def test_a_new_cluster_starts_at_its_first_batch():
    assert moved(np.array([1.0, 0.0]), [("a",), ("a",)], {}, 0.9, 10) == {"a": Running(0.5, 0.5)}


def test_an_outcome_moves_its_agent_and_its_tenant_as_well():
    after = moved(np.array([1.0, 0.0]), [("a", "agent:1", "tenant:t"), ("b", "agent:2", "tenant:t")], {}, 0.9, 10)
    assert {name: known.mean for name, known in after.items()} == {
        "a": 1.0, "agent:1": 1.0, "b": 0.0, "agent:2": 0.0, "tenant:t": 0.5,
    }  # fmt: skip


def test_the_cluster_longest_without_news_is_forgotten_first():
    state = {"old": Running(0.1, 0.1), "mid": Running(0.2, 0.2)}
    assert list(moved(np.array([1.0, 1.0]), [("old",), ("new",)], state, 0.9, 2)) == ["old", "new"]


def flooded(*floods, limit):
    """What is left when one run of each name of `floods` came after an agent's and its tenant's only one."""
    state = moved(np.array([1.0]), [("goal", "agent:first", "tenant:first")], {}, 0.9, limit)
    for name in floods:
        state = moved(np.array([0.0]), [(name,)], state, 0.9, limit)
        assert len(state) <= limit
    return state


def test_goals_that_came_once_push_out_neither_agents_nor_tenants():
    state = flooded(*[f"goal {n}" for n in range(100)], limit=16)
    assert list(state) == ["agent:first", "tenant:first", *[f"goal {n}" for n in range(86, 100)]]


def test_agents_without_number_do_not_push_out_clusters():
    state = flooded(*[f"agent:{n}" for n in range(100)], *[f"goal {n}" for n in range(11)], limit=16)
    assert list(state) == ["goal", *[f"agent:{n}" for n in range(96, 100)], *[f"goal {n}" for n in range(11)]]


def test_the_state_that_came_in_is_not_touched():
    state = {"a": Running(0.1, 0.1)}
    moved(np.array([1.0]), [("a",)], state, 0.9, 10)
    assert state == {"a": Running(0.1, 0.1)}


def attributed(cluster):
    return item(1.0, cluster=cluster).attributed


def test_clusters_agents_and_tenants_have_names_of_their_own():
    cluster, agent, tenant = kin(attributed("g1a2b"))
    assert cluster == "g1a2b"
    assert agent.startswith("agent:default/")
    assert tenant == "tenant:default"


ours = st.builds(str.__add__, st.sampled_from([AGENT, TENANT, CLUSTER]), st.text(":agent", max_size=9))


@given(
    one=st.text() | ours,
    other=st.text() | st.sampled_from(["agent:default/x", "tenant:default", "cluster:tenant:default", "cluster:"]),
)
def test_no_cluster_has_the_name_of_another_or_of_an_agent_or_a_tenant(one, other):
    (first, *pools), (second, *_) = kin(attributed(one)), kin(attributed(other))
    assert (first == second) == (one == other)
    assert not {first, second} & {*pools}
    assert not first.startswith((AGENT, TENANT))


def test_agents_are_told_apart_by_tenant_and_first_role():
    def agent(tenant, role):
        one = attributed("c")
        step = msgspec.structs.replace(one.trajectory.steps[0], role=role)
        run = msgspec.structs.replace(one.trajectory, steps=(step,), tenant=tenant)
        return kin(msgspec.structs.replace(one, trajectory=run))[1]

    assert len({agent("a", "x"), agent("a", "y"), agent("b", "x"), agent("b", "")}) == 4
