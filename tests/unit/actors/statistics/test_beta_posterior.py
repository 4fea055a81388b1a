"""Beta posteriors that forget."""

import pytest

from actors.statistics.beta_posterior import REACH, BetaPosterior


def test_what_is_always_solved_is_easy_and_promises_nothing_and_so_does_what_never_is() -> None:
    easy, hard = BetaPosterior().after([1.0] * 64), BetaPosterior().after([0.0] * 64)
    assert easy.difficulty < 0.05
    assert hard.difficulty > 0.95
    assert easy.promise == pytest.approx(hard.promise)
    assert easy.promise < 0.2 < 0.9 < BetaPosterior().after([0.0, 1.0] * 32).promise


def test_old_outcomes_are_forgotten() -> None:
    changed = BetaPosterior().after([1.0] * 500).after([0.0] * 100)
    assert changed.mean < 0.1
    assert changed.successes + changed.failures <= REACH
