"""alpha over the updates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.credit import CreditSettings
from learner.credit.schedule import alpha_at


def test_alpha_stays_unless_told_otherwise():
    assert [alpha_at(CreditSettings(alpha=0.1), update) for update in (0, 1, 10**9)] == [0.1] * 3


def test_the_cosine_by_hand():
    settings = CreditSettings(alpha=0.3, alpha_schedule="cosine", alpha_min=0.1, alpha_updates=10)
    # 0.1 + 0.2 (1 + cos(pi p)) / 2: cos is 1, 0.5, 0 and -1 at p = 0, 1/3, 1/2 and 1
    found = [alpha_at(settings, update) for update in (0, 5, 10, 11, 10**9)]
    assert found == pytest.approx([0.3, 0.2, 0.1, 0.1, 0.1])
    third = CreditSettings(alpha=0.3, alpha_schedule="cosine", alpha_min=0.1, alpha_updates=9)
    assert alpha_at(third, 3) == pytest.approx(0.25)


def test_it_stops_after_so_many_updates():
    settings = CreditSettings(alpha=0.3, alpha_schedule="stop", alpha_updates=2)
    assert [alpha_at(settings, update) for update in (0, 1, 2, 3)] == [0.3, 0.3, 0.0, 0.0]


@given(update=st.integers(-5, 300), low=st.floats(0, 1), high=st.floats(0, 1))
def test_the_cosine_never_leaves_its_ends_nor_turns_back(update, low, high):
    settings = CreditSettings(alpha=high, alpha_schedule="cosine", alpha_min=low, alpha_updates=100)
    now, after = alpha_at(settings, update), alpha_at(settings, update + 1)
    assert min(low, high) - 1e-12 <= now <= max(low, high) + 1e-12
    assert (after - now) * (low - high) >= -1e-12
