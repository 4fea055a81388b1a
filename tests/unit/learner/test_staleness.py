"""Before the first step: what the ratio is taken to, what a token weighs, which rows and batches are not worth it.

Four rows of two trained tokens; row 3 is guided. The present weights are a table of log-probs, so every figure can be
worked out by hand.
"""

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from learner.errors import BatchRefused  # noqa: E402
from learner.trainers import staleness  # noqa: E402
from learner.trainers.micro import Layout  # noqa: E402
from learner.trainers.staleness import Columns, judge, prepare  # noqa: E402
from tests.unit.learner.maker import token_batch  # noqa: E402
from tests.unit.learner.test_native import on_policy, random_batch, trainer, weights  # noqa: E402

pytestmark = pytest.mark.torch
ROWS = 4
GUIDED = 3


def arranged(now):
    """Columns of the batch, its layout, and a `score` that knows `now` `(4, 2)` and notes what it is asked for."""
    guided = (np.arange(ROWS) == GUIDED).astype(np.uint8)
    batch = token_batch([3] * ROWS, [0, 1, 1] * ROWS, guided=guided)
    layout, asked = Layout(batch), []

    def score(rows):
        asked.append(rows.tolist())
        return torch.tensor(now, dtype=torch.float32)[torch.from_numpy(rows)].flatten()

    return Columns(batch, layout, torch.device("cpu")), layout, score, asked


def shifted(*by):
    """Present log-probs that lie `by` above the recorded -1, row by row."""
    return [[-1.0 + each, -1.0 + each] for each in by]


def test_guided_rows_alone_are_scored_once_for_what_their_ratio_is_taken_to():
    columns, layout, score, asked = arranged(shifted(1.0, -1.0, 5.0, 2.0))
    metrics = prepare(columns, layout, score)
    assert asked == [[GUIDED]]
    assert metrics["guided_log_ratio"] == pytest.approx(2.0)
    assert columns.old.tolist() == [-1.0] * 6 + [1.0] * 2


def test_weights_that_give_no_number_are_refused_before_anything_moves():
    columns, layout, score, _ = arranged(shifted(0.0, 0.0, 0.0, float("nan")))
    with pytest.raises(BatchRefused) as refused:
        prepare(columns, layout, score)
    assert refused.value.reason == "nonfinite_log_probs"


def test_effective_shares_and_divergence_are_told_apart_for_guided_tokens():
    columns, layout, *_ = arranged(shifted(0.0, 0.0, 0.0, 0.0))
    now = torch.tensor([-1.0] * 6 + [-0.5, -1.5])
    told = judge(columns, columns.of(layout.trained), now)
    up, down = np.exp(0.5), np.exp(-0.5)
    assert told["effective_share_plain"] == pytest.approx(1.0)
    assert told["effective_share_guided"] == pytest.approx((up + down) ** 2 / (up**2 + down**2) / 2)
    assert told["effective_share"] == pytest.approx(1.0), "guided tokens are recomputed: each counts whole"
    assert told["kl_behaviour"] == pytest.approx(0.0, abs=1e-7)
    assert told["kl_behaviour_guided"] == pytest.approx(((up - 1.5) + (down - 0.5)) / 2)


def test_a_batch_that_would_be_mostly_noise_is_refused_and_says_so(warm_start, monkeypatch):
    subject = trainer(warm_start)
    monkeypatch.setattr(staleness, "LEAST_EFFECTIVE", 0.5)
    fresh = on_policy(subject, random_batch(rows=12))
    # Most tokens were nearly certain to whoever sampled them, and are not to these weights.
    sure = (fresh.mask > 0) & (np.arange(len(fresh.ids)) % 10 > 0)
    stale = msgspec.structs.replace(fresh, behaviour=np.where(sure, np.float32(-0.01), fresh.behaviour))
    before = weights(subject)
    with pytest.raises(BatchRefused, match="effective sample size") as refused:
        subject.update(stale, seed=0)
    assert refused.value.reason == "mostly_noise"
    assert all(bool((p == before[name]).all()) for name, p in weights(subject).items())
    assert subject.update(fresh, seed=0).steps == 1
