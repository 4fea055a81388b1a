"""How far the gate's estimate of a candidate's success from recorded runs can be believed, and how long runs may be.

    python -m tests.benchmarks.replay [--draws 300] [--seed 0]

Two policies with known truth. A run has ten decisions (four where it is short), each good or bad, and succeeds if
enough are good; two kinds of task, one harder. Around each decision stand tokens that mean nothing: the candidate's
probabilities differ there too. After a bad decision twice as many follow, so that failures are longer. The success of
both policies is a binomial tail. KL is of the whole run, by token; what the decisions do not use the rest does.
"""

import argparse
from math import comb, log

import msgspec
import numpy as np

from actors.gate.replay_trial import _CONFIDENCE, _EFFECTIVE_SHARE
from actors.statistics.intervals import decide
from actors.statistics.off_policy import Pull, pull

MARGIN = 0.05
"""`gate.margin` of the shipped settings."""
LENGTHS = (20, 200, 2000, 8000)
KLS = (1e-4, 3e-4, 1e-3, 3e-3)
TRUTHS = (-0.15, -0.05, 0.0, 0.15)
COUNTS = (32, 64, 256)
EASE = (0.9, 0.75)
"""Chance that the incumbent decides well, by kind of task."""
NEUTRAL = (0.5, 0.8, 0.95)
"""Probability of the commoner of two tokens, in equal parts."""
POOL = 20_000


class Pool(msgspec.Struct):
    """Runs of the incumbent."""

    truth: float
    """Candidate's success minus the incumbent's."""
    outcome: np.ndarray
    score: np.ndarray
    """`(runs,)` sum of ratio - 1 over tokens."""


def _move(p: float, nats: float) -> float:
    """q with KL(p || q) = nats, above p."""
    low, high = p, 1 - 1e-12
    for _ in range(60):
        q = (low + high) / 2
        low, high = (q, high) if _kl(p, q) < nats else (low, q)
    return low


def _kl(p: float, q: float) -> float:
    return p * log(p / q) + (1 - p) * log((1 - p) / (1 - q))


def _tail(p: float, n: int, least: int) -> float:
    return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))


def _lean(p: float, by: float) -> float:
    return 1 / (1 + (1 - p) / p * np.exp(-by))


def pool(length: int, kl: float, truth: float, rng: np.random.Generator) -> Pool | None:
    """None if so little divergence cannot make so much difference."""
    count = 4 if length < 100 else 10
    least = count - 1 if count == 4 else 8

    def gain(by: float) -> float:
        return float(np.mean([_tail(_lean(p, by), count, least) - _tail(p, count, least) for p in EASE]))

    low, high = -6.0, 6.0
    for _ in range(60):
        by = (low + high) / 2
        low, high = (by, high) if gain(by) < truth else (low, by)
    by = 0.0 if truth == 0 else low
    kind = rng.integers(0, 2, POOL)
    good = np.array(EASE)[kind]
    better = np.array([_lean(p, by) for p in EASE])[kind]
    budget = kl * length - count * float(np.mean([_kl(p, _lean(p, by)) for p in EASE]))
    if budget < 0:
        return None
    act = rng.random((POOL, count)) < good[:, None]
    ratio = np.where(act, (better / good)[:, None], ((1 - better) / (1 - good))[:, None])
    score = (ratio - 1).sum(1)
    share = float(np.mean(good))  # of steps that follow a good one
    each = max(1, round((length / count - 1) / (1 + (1 - share) * (count - 1) / count) / len(NEUTRAL)))
    number = np.full((POOL, count), each)
    number[:, 1:] = np.where(act[:, :-1], each, 2 * each)
    nats = budget / (float(number.sum(1).mean()) * len(NEUTRAL))
    for p in NEUTRAL:
        q = _move(p, nats)
        common = rng.binomial(number, p)
        score = score + (common * (q / p - 1) + (number - common) * ((1 - q) / (1 - p) - 1)).sum(1)
    return Pool(gain(by), (act.sum(1) >= least).astype(float), score)


def estimators(draws: int, seed: int) -> list[list[object]]:
    rows: list[list[object]] = []
    for length in LENGTHS:
        for kl in KLS:
            for truth in TRUTHS:
                rng = np.random.default_rng([seed, length, round(kl * 1e6), round(truth * 100) + 100])
                runs = pool(length, kl, truth, rng)
                if runs is None:
                    continue
                for count in COUNTS:
                    drawn = [rng.choice(POOL, count, replace=False) for _ in range(draws)]
                    found = [pull(runs.outcome[d], runs.score[d]) for d in drawn]
                    rows.append([length, kl, truth, count, *_figures(found, runs.truth)])
    return rows


def _figures(found: list[Pull], truth: float) -> list[float]:
    """Bias, spread, cover, effective share, and the shares of what is decided, of the gate's estimates."""
    intervals = [one.interval(_CONFIDENCE) for one in found]
    gaps = np.array([one.estimate for one in intervals])
    cover = np.mean([one.low <= truth <= one.high for one in intervals])
    effective = np.array([one.effective / one.count for one in found])
    said = np.array([decide(one, MARGIN) for one in intervals])
    said[effective < _EFFECTIVE_SHARE] = "far"
    return [
        float(gaps.mean() - truth), float(gaps.std()), float(cover), float(np.mean(effective)),
        *(float((said == what).mean()) for what in ("promote", "reject", "hold", "far")),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for row in estimators(arguments.draws, arguments.seed):
        print(" | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row), flush=True)


if __name__ == "__main__":
    main()
