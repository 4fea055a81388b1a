"""Baselines of outcomes against hand-computed numbers, and corrections of outcomes that were trained on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from actors.messages import BatchItem
from learner.credit import CreditSettings, assign
from learner.credit.outcomes import SPREAD, expected, group
from tests.support.credited import attributed
from tests.unit.learner.maker import expecting, with_judgement

outcomes = hnp.arrays(np.float64, st.integers(2, 12), elements=st.integers(0, 20).map(lambda x: x / 20))


def test_group_by_hand():
    # mean 0.25, population deviation sqrt(3)/4
    assert group(np.array([1.0, 0, 0, 0])) == pytest.approx([3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)])
    assert not group(np.full(5, 0.7)).any(), "equal outcomes have no advantage"


@given(values=outcomes, shift=st.floats(-5, 5), scale=st.floats(0.5, 20))
def test_shift_and_scale_change_nothing_and_a_group_sums_to_nothing(values, shift, scale):
    assert group(values * scale + shift) == pytest.approx(group(values), abs=1e-6)
    assert group(values).sum() == pytest.approx(0, abs=1e-7)


@given(values=outcomes, place=st.integers(0, 11), other=st.integers(0, 20).map(lambda x: x / 20))
def test_no_outcome_is_in_its_own_baseline(values, place, other):
    i = place % len(values)
    changed = values.copy()
    changed[i] = other
    nothing = [None] * len(values)
    before, after = expected(values, nothing)[0][i], expected(changed, nothing)[0][i]
    assert after - before == pytest.approx((other - values[i]) / SPREAD, abs=1e-9)


def item(key: str, outcome: float, corrects: float | None = None) -> BatchItem:
    return BatchItem(attributed=attributed(key, outcome=outcome), corrects=corrects)


COMPANY = [item("a", 1.0), item("b", 0.0), item("c", 1.0)]
PAST = {"c": 0.6}


def last(one: BatchItem, past: dict[str, float] = PAST, alpha: float = 0.5) -> np.ndarray:
    """Advantages of `one` among the others."""
    found = assign(expecting([*COMPANY, one], past), CreditSettings(alpha=alpha)).advantages[-1]
    assert found is not None
    return found


def test_a_run_trained_with_a_wrong_outcome_and_then_corrected_comes_to_the_right_update() -> None:
    wrong, right = (last(item("x", outcome), alpha=0.0) for outcome in (1.0, 0.0))
    correction = last(item("x", 0.0, corrects=1.0), alpha=0.0)
    np.testing.assert_allclose(wrong + correction, right, rtol=1e-6)


@pytest.mark.parametrize(("new", "old", "sign"), [(0.0, 1.0, -1.0), (1.0, 0.0, 1.0), (0.5, 0.0, 1.0)])
@pytest.mark.parametrize("past", [PAST, {}])
def test_a_correction_has_the_sign_of_the_change_and_changes_nothing_for_others(
    new: float, old: float, sign: float, past: dict[str, float]
) -> None:
    corrected = item("x", new, corrects=old)
    assert (np.sign(last(corrected, past)) == sign).all()
    among, alone = (
        assign(expecting(each, past), CreditSettings()).advantages for each in ([*COMPANY, corrected], COMPANY)
    )
    np.testing.assert_array_equal(among[:-1], alone)


def test_step_labels_have_no_part_in_a_correction() -> None:
    plain = item("x", 0.0, corrects=1.0)
    np.testing.assert_array_equal(last(plain), last(with_judgement(plain, weight=0.0)))


def test_a_correction_that_nothing_can_be_compared_with_is_left_out() -> None:
    credits = assign([item("x", 0.0, corrects=1.0)], CreditSettings())
    assert credits.advantages == (None,)
    assert credits.left == ("zero_advantage",)
