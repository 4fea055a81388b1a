"""Token weights that are summed, and what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.statistics.off_policy import pull, student, token_terms


def test_a_token_says_how_much_its_probability_changed() -> None:
    candidate, incumbent = np.log([0.6, 0.2]), np.log([0.5, 0.4])
    behaviour = np.log([0.5, 0.5])
    assert token_terms(candidate, incumbent, behaviour, 5.0) == pytest.approx([0.2, -0.4])
    assert token_terms(np.log([0.9]), np.log([0.5]), np.log([0.01]), 5.0) == pytest.approx([0.0]), "both cut at 5"


@pytest.mark.parametrize("heat", [0.7, 1.0, 1.3])
def test_the_mean_score_is_zero_at_any_temperature(heat: float) -> None:
    rng = np.random.default_rng(5)
    incumbent = rng.normal(0, 1, 8)
    candidate = incumbent + rng.normal(0, 0.2, 8)
    new, old, acts = (np.exp(logits) / np.exp(logits).sum() for logits in (candidate, incumbent, incumbent / heat))
    terms = token_terms(np.log(new), np.log(old), np.log(acts), 5.0)
    assert float(acts @ terms) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("tokens", [20, 2000])
def test_the_interval_covers_the_truth_however_long_the_run(tokens: int) -> None:
    """One token in each run decides; the others are noise, of which failures have twice as many."""
    hits, rng = 0, np.random.default_rng(2)
    up, down = 0.05, 0.05 * 0.8 / 0.2
    for _ in range(300):
        good = rng.random(100) < 0.7
        length = np.where(good, tokens, 2 * tokens)
        common = rng.binomial(length, 0.8)
        scores = np.where(good, 0.75 / 0.7, 0.25 / 0.3) - 1 + common * up - (length - common) * down
        found = pull(good.astype(float), scores).interval(0.9)
        hits += found.low <= 0.05 <= found.high
    assert 255 <= hits <= 290, "of 300, 270 expected"


def test_the_pull_is_as_it_is_however_often_failures_are_reported() -> None:
    rng = np.random.default_rng(3)
    good = rng.random(200_000) < 0.9
    scores = rng.normal(np.where(good, 0.02, -0.18), 1.0)
    reported = rng.random(200_000) < np.where(good, 0.05, 0.4)
    whole, part = pull(good.astype(float), scores), pull(good[reported].astype(float), scores[reported])
    assert part.success == pytest.approx(0.53, abs=0.01)
    assert part.estimate == pytest.approx(whole.estimate, abs=0.03)


def test_where_nothing_succeeded_nothing_is_said_and_where_nothing_failed_little() -> None:
    assert pull([0] * 20, [0.1] * 20).interval(0.9).high == 1.0
    found = pull([1] * 20, [0.1] * 20).interval(0.9)
    assert (found.estimate, found.high) == (0.0, 0.0)
    assert found.low == pytest.approx(-0.119, abs=0.001)
    assert pull([], []).interval(0.9).low == -1.0


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [(0.9, 3, 2.353363), (0.9, 10, 1.812461), (0.95, 3, 3.182446), (0.95, 5, 2.570582), (0.95, 30, 2.042272)],
)
def test_the_quantile_is_students(confidence: float, freedom: float, quantile: float) -> None:
    """Figures of scipy.stats.t.ppf."""
    assert student(confidence, freedom) == pytest.approx(quantile, rel=0.008)


def test_one_failure_tells_nothing_and_two_do() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(0.0, 0.1, 40)
    one, two = (pull([1.0] * (40 - failed) + [0.0] * failed, scores).interval(0.9) for failed in (1, 2))
    assert one.high - one.low == pytest.approx(1.0)
    assert two.high - two.low < 0.1


def test_one_run_with_all_the_change_is_no_evidence() -> None:
    assert pull([1, 0] * 20, [0.0] * 40).effective == pytest.approx(40)
    assert pull([1, 0] * 20, [500.0] + [0.0] * 39).effective < 2


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-50, 50)), min_size=0, max_size=40))
def test_bounds(rows: list[tuple[float, float]]) -> None:
    found = pull([told for told, _ in rows], [score for _, score in rows])
    between = found.interval(0.9)
    assert -1 <= between.low <= between.estimate + 1e-9
    assert between.estimate - 1e-9 <= between.high <= 1
