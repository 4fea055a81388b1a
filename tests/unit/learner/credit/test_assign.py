"""`assign`: sets, roles, skips, and what was to be expected."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.credit import CreditSettings, assign
from tests.unit.learner.maker import expecting, item, with_run

OUTCOME_ONLY = CreditSettings(alpha=0.0)
PAPER = CreditSettings(alpha=0.1, discount=1.0)


@pytest.mark.parametrize(
    ("settings", "good", "bad"),
    # outcomes -> +-1. Labels: means 1 and 0 however many steps, mu 0.5, sigma^2 1 - 0.25; what was not judged is none.
    [
        (CreditSettings(), [0.5], [0.5, -1.5, 0.0, 0.5, -1.5]),
        (CreditSettings(discount=0.5), [0.5], [-0.28125, -1.5625, -0.125, -0.25, -1.5]),
        (PAPER, [0.05], [-0.2, -0.25, -0.1, -0.1, -0.15]),
    ],
    ids=["each label is its own step's", "and half of it the step's before", "the paper: a tenth, and of later steps"],
)
def test_a_group_by_hand(settings, good, bad):
    credits = assign([item(1.0, "+", group="g"), item(0.0, "+-?+-", group="g")], settings)
    sigma = 0.75**0.5
    assert credits.advantages[0] == pytest.approx(1 + np.array(good) / sigma)
    assert credits.advantages[1] == pytest.approx(-1 + np.array(bad) / sigma)


def first(credits):
    return [None if advantage is None else float(advantage[0]) for advantage in credits.advantages]


PAIR = [item(1.0, group="g"), item(0.0, group="g")]
FOUR = [item(outcome, group="four") for outcome in (1.0, 0.0, 0.0, 0.0)]
ALONE = [item(1.0, cluster="a"), item(0.0, cluster="b"), item(1.0, cluster="c")]


@pytest.mark.parametrize(
    ("items", "means", "advantages"),
    [
        # mean 0.25, population deviation sqrt(3)/4; the pair beside them is compared with itself
        ([*FOUR, *PAIR], {}, [3**0.5, *[-(3**-0.5)] * 3, 1, -1]),
        (PAIR, {"c": 0.9}, [1, -1]),  # a group with its mean, whatever was expected
        ([item(1e7, group="g"), *PAIR], {}, [None, 1, -1]),  # beyond all measure, which spoils nobody else's
        (ALONE, {"a": 0.8, "b": 0.2}, [0.5, -0.5, 1.25]),  # of the third nothing is known: the others' mean is a half
        (PAIR[:1], {"c": 0.2}, [2.0]),  # alone of its group
        (ALONE[:2], {"a": float("nan")}, [2.5, -2.5]),  # NaN counts as no estimate
        (ALONE[:2], {"b": float("inf")}, [2.5, -2.5]),
    ],
)
def test_what_outcomes_are_compared_with(items, means, advantages):
    assert first(assign(expecting(items, means), OUTCOME_ONLY)) == pytest.approx(advantages)


def test_an_untrainable_member_counts_in_the_mean_and_gets_nothing():
    credits = assign([item(1.0, group="g"), item(0.0, group="g", trainable=False)], OUTCOME_ONLY)
    assert first(credits) == [pytest.approx(1), None]
    assert credits.skipped == {"not_trainable": 1}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (item(None), "no_outcome"),
        (item(float("nan")), "no_outcome"),
        (item(1e7), "outcome_range"),
        (item(1.0, ""), "no_steps"),
    ],
)
def test_what_has_no_credit_is_left_out_of_everything(bad, reason):
    credits = assign([bad, item(1.0, group="g"), item(0.0, group="g")], OUTCOME_ONLY)
    assert credits.left[0] == reason
    assert credits.advantages[1] == pytest.approx([1])


def test_a_run_alone_of_which_nothing_is_known_is_left_out_labels_and_all():
    group = [item(1.0, id="g1", group="g"), item(0.0, id="g2", group="g")]
    credits = assign(expecting([item(1.0, "+-", id="new"), *group], {"other": 0.5}), CreditSettings())
    assert credits.reasons == {"new": "nothing_to_compare"}
    assert credits.skipped == {"nothing_to_compare": 1}


def test_reasons_name_each_trajectory_without_gradient():
    items = [
        item(1.0, id="trained", group="g"), item(0.0, id="fixed", group="g", trainable=False), item(None, id="open"),
        item(1.0, id="e1", group="e"), item(1.0, id="e2", group="e"), item(0.5, id="usual"),
    ]  # fmt: skip
    credits = assign(expecting(items, {"c": 0.5}), OUTCOME_ONLY)
    assert credits.reasons == {
        "fixed": "not_trainable", "open": "no_outcome", "e1": "equal_outcomes", "e2": "equal_outcomes",
        "usual": "zero_advantage",
    }  # fmt: skip
    assert credits.skipped == {"not_trainable": 1, "no_outcome": 1, "equal_outcomes": 2, "zero_advantage": 1}


def test_statistics_tell_the_channels_apart():
    credits = assign([item(1.0, "++", group="g"), item(0.0, "-?", group="g")], PAPER)
    assert credits.statistics["steps_good"] == 0.5
    assert credits.statistics["steps_abstained"] == 0.25
    # Labels are +-1 after the z-score: the first has two of them, the second one.
    assert credits.statistics["alpha_effective"] == pytest.approx(0.15)
    assert credits.statistics["signs_agree"] == 1.0


trajectories = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.text("+-?", min_size=1, max_size=4), st.sampled_from("gh ")),
    min_size=1,
    max_size=8,
)  # fmt: skip


choices = st.sampled_from([CreditSettings(), PAPER, OUTCOME_ONLY, CreditSettings(discount=0.5)])


@given(rows=trajectories, settings=choices, seed=st.integers(0, 99))
def test_items_may_come_in_any_order(rows, settings, seed):
    items = [item(o, labels, id=str(i), group=g.strip()) for i, (o, labels, g) in enumerate(rows)]
    order = np.random.default_rng(seed).permutation(len(items))
    straight, mixed = assign(items, settings), assign([items[i] for i in order], settings)
    for place, i in enumerate(order):
        a, b = mixed.advantages[place], straight.advantages[i]
        assert (a is None) == (b is None)
        assert a is None or a == pytest.approx(b, abs=1e-6)


odd = st.one_of(
    st.none(), st.sampled_from([0.0, 1.0, float("nan"), float("inf"), -1e308, 1e308, 1e6, -1e6, 1e-300, 5e-324])
)  # fmt: skip


@given(
    rows=st.lists(st.tuples(odd, st.text("+-?", max_size=4), st.sampled_from("gh "), st.booleans()), max_size=6),
    settings=choices,
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_whatever_comes_in_an_advantage_is_a_number_or_a_counted_reason(rows, settings):
    items = [item(o, labels, group=g.strip(), trainable=yes) for o, labels, g, yes in rows]
    credits = assign(expecting(items, {"c": 0.5}), settings)
    for advantage, reason in zip(credits.advantages, credits.left, strict=True):
        assert (advantage is None) == bool(reason)
        assert advantage is None or np.isfinite(advantage).all()
    assert sum(credits.skipped.values()) == sum(advantage is None for advantage in credits.advantages)
    assert all(np.isfinite(value) for value in credits.statistics.values())


def test_advantages_of_tasks_made_here_are_scaled_and_those_of_others_are_not():
    group = [item(1.0, "+-", group="g"), item(0.0, "-+", group="g")]
    full, half = assign(group, CreditSettings()), assign([with_run(one, scale=0.5) for one in group], CreditSettings())
    for whole, halved in zip(full.advantages, half.advantages, strict=True):
        assert halved == pytest.approx(0.5 * whole)
    mixed = assign([item(1.0, group="g", scale=0.25), item(0.0, group="g")], OUTCOME_ONLY)
    assert first(mixed) == pytest.approx([0.25, -1.0]), "the baseline is the group's, whatever the scale"


@pytest.mark.parametrize(
    ("scale", "left", "gets"),
    [
        (0.0, "zero_advantage", None),
        (-1.0, "zero_advantage", None),
        (float("nan"), "zero_advantage", None),
        (7.0, "", 1.0),
    ],
)
def test_a_scale_that_leaves_nothing_leaves_no_gradient_and_one_above_one_is_one(scale, left, gets):
    made = assign([item(1.0, group="g", scale=scale), item(0.0, group="g")], OUTCOME_ONLY)
    assert made.left == (left, "")
    assert first(made) == pytest.approx([gets, -1.0])


def of(made, agent, neighbourhood="n"):
    return msgspec.structs.replace(made, kind=(agent, neighbourhood))


def test_no_label_trains_the_successes_of_a_kind_that_succeeds():
    runs = [item(1.0, labels, id=str(n)) for n, labels in enumerate(("+-", "--", "-+", "++", "+", "-", "+-+", "-+-"))]
    credits = assign(expecting(runs, {"c": 0.95}), CreditSettings())
    for own in credits.advantages:
        assert own == pytest.approx(np.full(len(own), 0.125)), "the outcome's advantage at every step"
    assert assign(expecting(runs, {"c": 1.0}), CreditSettings()).skipped == {"zero_advantage": 8}


def test_a_failure_among_them_makes_their_labels_count_again_as_far_as_their_outcomes_do():
    runs = expecting([item(1.0, "++"), item(1.0, "+-"), item(0.0, "+-")], {"c": 0.95})
    credits = assign(runs, CreditSettings())
    assert credits.skipped == {}
    good, mixed, bad = (own.tolist() for own in credits.advantages)
    assert good == pytest.approx([0.25, 0.25])
    assert mixed == pytest.approx([0.25, 0.0])
    # (0 - 0.95) / 0.4, and labels of mean 1/3: (1 - 1/3) / sigma, (-1 - 1/3) / sigma
    sigma = (8 / 9) ** 0.5
    assert bad == pytest.approx([-2.375 + 2 / 3 / sigma, -2.375 - 4 / 3 / sigma])


def test_an_outcome_that_is_usual_in_one_kind_is_news_in_another():
    runs = [item(1.0, "+-", cluster="easy"), item(1.0, "+-", cluster="hard")]
    easy, hard = assign(expecting(runs, {"easy": 0.95, "hard": 0.3}), CreditSettings()).advantages
    assert easy[0] == easy[1]
    assert hard[0] > hard[1]


singles = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0]), st.text("+-?", min_size=1, max_size=4), st.sampled_from("ab"),
        st.sampled_from("xy"), st.floats(0.0, 1.0),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


def expected_runs(rows):
    made = [
        of(item(o, labels, id=str(i), cluster=str(i)), agent, near)
        for i, (o, labels, agent, near, _) in enumerate(rows)
    ]
    return expecting(made, {str(i): row[-1] for i, row in enumerate(rows)})


@given(rows=singles, discount=st.sampled_from([0.0, 1.0]), alpha=st.sampled_from([0.1, 1.0, 5.0]))
def test_labels_turn_no_step_of_a_single_run_against_its_outcome(rows, discount, alpha):
    credits = assign(expected_runs(rows), CreditSettings(alpha=alpha, discount=discount))
    for (outcome, *_, mean), own in zip(rows, credits.advantages, strict=True):
        if own is not None:
            assert (own * np.sign(outcome - mean) >= 0).all()


@given(rows=singles)
def test_what_another_agent_did_changes_no_single_run(rows):
    items = expected_runs(rows)
    mine = [one for one in items if one.kind[0] == "a"]
    alone = assign(mine, CreditSettings())
    among = assign(items, CreditSettings())
    for own, reason, one in zip(alone.advantages, alone.left, mine, strict=True):
        there = items.index(one)
        assert among.left[there] == reason
        assert own is None or own == pytest.approx(among.advantages[there])


def test_labels_are_compared_within_a_neighbourhood_and_pulled_towards_the_agents():
    # Neighbourhood x has means 1, 1 and y has -1: the agent's is 1/3. Pulled by 4 runs x has (2 + 4/3) / 6 = 5/9 and
    # y has (-1 + 4/3) / 5 = 1/15; squares are 1.
    rows = [(1.0, "+", "a", "x", 0.5), (1.0, "+", "a", "x", 0.5), (1.0, "-", "a", "y", 0.5)]
    credits = assign(expected_runs(rows), CreditSettings(alpha=0.1))
    x, y = (1 - 5 / 9) / (1 - 25 / 81) ** 0.5, (-1 - 1 / 15) / (1 - 1 / 225) ** 0.5
    assert first(credits) == pytest.approx([1.25 + 0.1 * x, 1.25 + 0.1 * x, 1.25 + 0.1 * y])


def test_without_a_kind_the_runs_own_agent_and_cluster_stand_in():
    runs = [item(1.0, "+", id="a", cluster="x"), item(1.0, "-", id="b", cluster="y")]
    named = [of(runs[0], "t/", "x"), of(runs[1], "t/", "y")]
    settings = CreditSettings(alpha=0.1)
    found, wanted = (first(assign(expecting(each, {"x": 0.5, "y": 0.5}), settings)) for each in (runs, named))
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("fields", "cut", "left"),
    [
        ({"source": "production"}, "length", ""),  # reported
        ({"source": "production", "graded": True}, "length", "cut_off"),
        ({"source": "production", "provisional": True}, "length", "cut_off"),
        ({"source": "production", "graded": True}, "", ""),
        ({"source": "sandbox", "closed_by": "finish"}, "length", ""),  # verified
        ({"source": "sandbox", "closed_by": "finish", "graded": True}, "length", "cut_off"),
        ({"source": "sandbox", "closed_by": "limit"}, "context", "cut_off"),
        ({"source": "sandbox", "closed_by": "limit"}, "length", "cut_off"),
        ({"source": "sandbox", "closed_by": "limit"}, "", ""),  # too many steps
    ],
)  # fmt: skip
def test_a_run_whose_answer_was_cut_off_fails_only_if_somebody_reported_or_verified_it(fields, cut, left):
    group = [item(1.0, "+", id="won", group="g"), item(0.0, "-", id="lost", group="g")]
    run = item(0.0, "+-", id="cut", group="g")
    first_step, last_step = run.attributed.trajectory.steps
    cut_off = with_run(run, steps=(first_step, msgspec.structs.replace(last_step, cut=cut)), **fields)
    credits = assign([*group, cut_off], OUTCOME_ONLY)
    assert credits.left[2] == left
    if left:
        # It counts in no mean either: the others are as without it.
        assert first(credits)[:2] == first(assign(group, OUTCOME_ONLY))
    else:
        assert credits.advantages[2][0] < 0


def test_an_answer_that_was_cut_off_on_the_way_does_not_make_the_run_one():
    run = item(0.0, "+-", id="went on", group="g")
    steps = run.attributed.trajectory.steps
    went_on = with_run(run, steps=(msgspec.structs.replace(steps[0], cut="length"), steps[1]), graded=True)
    assert assign([item(1.0, group="g"), went_on], OUTCOME_ONLY).left == ("", "")
