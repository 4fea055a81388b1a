"""A corrected outcome trains with the difference, and with nothing else."""

import msgspec
import numpy as np
import pytest

from actors.messages import BatchItem
from learner.credit import CreditSettings, assign
from learner.credit.settings import Estimator, Single
from tests.support.credited import attributed
from tests.unit.learner.maker import expecting


def item(key: str, outcome: float, corrects: float | None = None) -> BatchItem:
    return BatchItem(attributed=attributed(key, outcome=outcome), corrects=corrects)


def settings(**fields) -> CreditSettings:
    return CreditSettings(**fields)


def company() -> list[BatchItem]:
    return [item("a", 1.0), item("b", 0.0), item("c", 1.0)]


PAST = {"c": 0.6}


@pytest.mark.parametrize("fixed", [0.5, 0.0])
def test_with_an_estimate_both_updates_come_to_the_right_one(fixed: float) -> None:
    own = settings(single="estimate", single_std=fixed, alpha=0.0)
    (wrong, right) = (assign(expecting([*company(), item("x", o)], PAST), own).advantages[-1] for o in (1.0, 0.0))
    credits = assign(expecting([*company(), item("x", 0.0, corrects=1.0)], PAST), own)
    assert credits.left[-1] == ""
    assert wrong is not None
    assert right is not None
    assert credits.advantages[-1] is not None
    np.testing.assert_allclose(wrong + credits.advantages[-1], right, rtol=1e-6)


@pytest.mark.parametrize("single", ["estimate", "leave_one_out", "neighbours", "sandbox"])
@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce++", "reinforce++_baseline"])
def test_whatever_the_baseline_the_sign_is_that_of_the_change(single: Single, estimator: Estimator) -> None:
    own = settings(single=single, estimator=estimator)
    for new, old, sign in ((0.0, 1.0, -1.0), (1.0, 0.0, 1.0), (0.5, 0.0, 1.0)):
        credits = assign(expecting([*company(), item("x", new, corrects=old)], PAST), own)
        steps = credits.advantages[-1]
        assert steps is not None
        assert (np.sign(steps) == sign).all(), (new, old)


def test_a_correction_changes_nothing_for_others() -> None:
    own = settings(single="leave_one_out")
    alone, beside = (
        assign(expecting(company(), PAST), own),
        assign(expecting([*company(), item("x", 0.0, corrects=1.0)], PAST), own),
    )
    for before, after in zip(alone.advantages, beside.advantages, strict=False):
        assert before is not None
        assert after is not None
        np.testing.assert_array_equal(before, after)


def test_step_labels_have_no_part_in_a_correction() -> None:
    own = settings(single="estimate", alpha=0.5)
    plain = item("x", 0.0, corrects=1.0)
    labelled = msgspec.structs.replace(
        plain, attributed=msgspec.structs.replace(plain.attributed, attribution=msgspec.structs.replace(
            plain.attributed.attribution, weight=0.0,
        ))
    )  # fmt: skip
    (first, second) = (assign(expecting([*company(), one], PAST), own).advantages[-1] for one in (plain, labelled))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first, second)


def test_a_correction_that_nothing_can_be_compared_with_is_left_out() -> None:
    credits = assign([item("x", 0.0, corrects=1.0)], settings(single="estimate"))
    assert credits.advantages == (None,)
    assert credits.left == ("zero_advantage",)
