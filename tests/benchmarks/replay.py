"""How far the gate's estimate of a candidate's success from recorded runs can be believed, and how long runs may be.

    python -m tests.benchmarks.replay [--part estimators|temperature|parties|vetoes] [--draws 300] [--seed 0]

Two policies with known truth. A run has ten decisions (four where it is short), each good or bad, and succeeds if
enough are good; two kinds of task, one harder. Around each decision stand tokens that mean nothing: the candidate's
probabilities differ there too. After a bad decision twice as many follow, so that failures are longer. The success of
both policies is a binomial tail. KL is of the whole run, by token; what the decisions do not use the rest does.
"""

import argparse
from collections.abc import Callable
from math import comb, log

import msgspec
import numpy as np

from actors.gate.replay_trial import _CONFIDENCE, _EFFECTIVE_SHARE, _WEIGHT_LIMIT, ReplayTrialSettings
from actors.gate.weighing import Weighed, pooled, veto
from actors.statistics.intervals import Interval, decide
from actors.statistics.off_policy import pull as pull_of
from actors.statistics.off_policy import token_terms
from actors.statistics.parties import newest, thinned

SETTINGS = ReplayTrialSettings()
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


def _pull(outcome: np.ndarray, score: np.ndarray) -> tuple[Interval, float]:
    """The gate's estimate, and the share of the runs that is effective."""
    found = pull_of(outcome, score)
    return found.interval(_CONFIDENCE), found.effective / len(outcome)


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
                    found = [_pull(runs.outcome[d], runs.score[d]) for d in drawn]
                    rows.append([length, kl, truth, count, *_figures(found, runs.truth)])
    return rows


def _figures(found: list[tuple[Interval, float]], truth: float) -> list[float]:
    gaps = np.array([one.estimate for one, _ in found])
    cover = np.mean([one.low <= truth <= one.high for one, _ in found])
    far = np.array([share < _EFFECTIVE_SHARE for _, share in found])
    said = np.array([decide(one, SETTINGS.margin) for one, _ in found])
    said[far] = "far"
    return [
        float(gaps.mean() - truth), float(gaps.std()), float(cover), float(np.mean([share for _, share in found])),
        *(float((said == what).mean()) for what in ("promote", "reject", "hold", "far")),
    ]  # fmt: skip


HONEST = ["a", "b", "c", "d", "e", "f", "g"]
RUNS = 8000
"""Held-out runs that are looked through."""
ATTACKS: dict[str, Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]] = {
    # outcomes, scores (which nobody outside knows: the worst there can be), chance -> what is reported
    "none": lambda o, s, r: o,
    "inverts": lambda o, s, r: 1 - o,
    "all failed": lambda o, s, r: np.zeros_like(o),
    "against, knows scores": lambda o, s, r: (s < 0).astype(float),
    "for, knows scores": lambda o, s, r: (s > 0).astype(float),
    "against, every third": lambda o, s, r: np.where(r.random(len(o)) < 1 / 3, (s < 0).astype(float), o),
    "for, every third": lambda o, s, r: np.where(r.random(len(o)) < 1 / 3, (s > 0).astype(float), o),
}


def parties(draws: int, seed: int) -> list[list[object]]:
    """One hostile party of several, all of whose runs are reported and one in twenty of the others'."""
    rows: list[list[object]] = []
    for length, kl in ((200, 1e-3), (2000, 1e-3)):
        for truth in (-0.15, -0.05, 0.0, 0.15):
            runs = pool(length, kl, truth, np.random.default_rng([seed, length, round(truth * 100) + 100]))
            assert runs is not None
            for number in (3, 7):
                for share in (0.05, 0.1, 0.2):
                    for name, attack in ATTACKS.items():
                        rng = np.random.default_rng(
                            [seed, length, round(truth * 100) + 100, number, round(share * 100)]
                        )
                        said = [_verdicts(runs, number, share, attack, rng) for _ in range(draws)]
                        rows.append([length, truth, number + 1, share, name, *_shares(said)])
    return rows


def _verdicts(runs: Pool, number: int, share: float, attack: object, rng: np.random.Generator) -> tuple[str, str]:
    """What the gate says with the rule, and without."""
    hostile = rng.random(RUNS) < share
    told = hostile | (rng.random(RUNS) < 0.05)
    drawn = rng.integers(0, POOL, int(told.sum()))
    hostile = hostile[told]
    whose = np.where(hostile, "hostile", np.array(HONEST)[rng.integers(0, number, len(drawn))])
    outcome, score = runs.outcome[drawn].copy(), runs.score[drawn]
    outcome[hostile] = attack(outcome[hostile], score[hostile], rng)  # type: ignore[operator]
    plain = slice(0, SETTINGS.most)
    alone = decide(pull_of(outcome[plain], score[plain]).interval(_CONFIDENCE), SETTINGS.margin)
    window = newest(whose.tolist(), SETTINGS.most, RUNS)
    window = [window[place] for place in thinned(whose[window].tolist())]
    found = [Weighed(("t", ()), str(whose[at]), float(outcome[at]), float(score[at])) for at in window]
    return decide(pooled(found).pull.interval(_CONFIDENCE), SETTINGS.margin), alone


def _shares(said: list[tuple[str, str]]) -> list[float]:
    return [sum(one[which] == what for one in said) / len(said) for which in (0, 1) for what in ("promote", "reject")]


def vetoes(draws: int, seed: int) -> list[list[object]]:
    """Agents of one key each, of which one is worse off or none: how often does any veto, and the one that is?"""
    rows: list[list[object]] = []
    for length, kl in ((200, 1e-3), (2000, 1e-3)):
        for number, each in ((2, 64), (10, 8), (10, 24), (30, 8)):
            for truth in (0.0, -0.15):
                rng = np.random.default_rng([seed, length, number, each, round(truth * 100) + 100])
                same, other = pool(length, kl, 0.0, rng), pool(length, kl, truth, rng)
                assert same is not None
                assert other is not None
                false = found = 0
                for _ in range(draws):
                    runs: list[Weighed] = []
                    for group in range(number):
                        of = other if group == 0 else same
                        runs += [
                            Weighed(("t", (f"{group:02d}",)), "t", float(of.outcome[at]), float(of.score[at]))
                            for at in rng.integers(0, POOL, each)
                        ]
                    harmed = veto(runs, SETTINGS.margin, least=8).harmed
                    hit = any("(00)" in words for words in harmed)
                    found += hit
                    false += len(harmed) > hit
                rows.append([length, number, each, truth, found / draws, false / draws])
    return rows


WORDS = 12
"""Tokens of the vocabulary."""
STEEP = 2.0
"""What the share of right words adds to the chance of success."""
STATES = 400
"""Prefixes, half of them of the hard kind, each with a distribution of its own."""


WORLDS = 20


def temperature(draws: int, seed: int) -> list[list[object]]:
    """Runs sampled at a temperature, scored at 1. A run visits states of its kind; in each the first word is right. Its
    chance of success is a line in the share that was right. The candidate's logits have moved at random, and are
    `sharper` times those before; that of the right word has moved so that the truth is met. Runs of the hard kind are
    half as long again, and fail more often. Each world has distributions of its own: what is said of a heat is the mean
    over worlds, with the mean size of a world's bias."""
    rows: list[list[object]] = []
    for heat in (1.0, 0.7, 0.5, 1.3):
        for sharper in (1.0, 1.05):
            for truth in (0.0, 0.1, -0.1):
                by_method: dict[str, list[list[float]]] = {}
                for world in range(WORLDS):
                    rng = np.random.default_rng(
                        [seed, world, round(heat * 10), round(sharper * 100), round(truth * 10) + 10]
                    )
                    for name, found in _heated(heat, sharper, truth, max(2, draws // WORLDS), rng).items():
                        by_method.setdefault(name, []).append(found)
                for name, found in by_method.items():
                    means = np.mean(found, 0)
                    rows.append([heat, sharper, truth, name, float(np.mean(np.abs([one[1] for one in found]))), *means])
    return rows


def _heated(heat: float, sharper: float, truth: float, draws: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """By method: KL a token, and what `_figures` says."""
    incumbent = rng.normal(0, 2, (STATES, WORDS))
    incumbent[:, 0] = 1.0 + rng.normal(0, 1, STATES)
    moved = sharper * incumbent + rng.normal(0, 0.05, (STATES, WORDS))
    hard = np.arange(STATES) < STATES // 2
    incumbent[hard, 0] -= 0.5

    def chances(logits: np.ndarray, by: float = 1.0) -> np.ndarray:
        odds = np.exp((logits - logits.max(1, keepdims=True)) / by)
        return odds / odds.sum(1, keepdims=True)

    acts = chances(incumbent, heat)
    usual = [acts[hard == one, 0].mean() for one in (False, True)]

    def gain(by: float) -> float:
        tried = moved.copy()
        tried[:, 0] += by
        now = chances(tried, heat)
        return STEEP * float(np.mean([now[hard == one, 0].mean() - usual[one] for one in (False, True)]))

    low, high = -4.0, 4.0
    for _ in range(50):
        by = (low + high) / 2
        low, high = (by, high) if gain(by) < truth else (low, by)
    moved[:, 0] += low
    new, old = np.log(chances(moved)), np.log(chances(incumbent))
    kl = float((chances(incumbent) * (old - new)).sum(1).mean())
    cumulative = acts.cumsum(1)
    found: dict[str, list[tuple[Interval, float]]] = {
        "recorded (used)": [], "as the incumbent's at 1": [], "ratio to 1/T, centred": [],
    }  # fmt: skip
    for _ in range(draws):
        told: list[float] = []
        scores: list[tuple[float, float]] = []
        heated: list[tuple[float, int]] = []
        for _ in range(128):
            kind = bool(rng.random() < 0.5)
            states = rng.choice(np.flatnonzero(hard == kind), 90 if kind else 60)
            words = (rng.random(len(states))[:, None] > cumulative[states]).sum(1).clip(0, WORDS - 1)
            chance = (0.35 if kind else 0.65) + STEEP * (float((words == 0).mean()) - usual[kind])
            told.append(float(rng.random() < chance))
            mine, theirs, recorded = new[states, words], old[states, words], np.log(acts[states, words])
            one, other = (token_terms(mine, theirs, by, _WEIGHT_LIMIT).sum() for by in (recorded, theirs))
            scores.append((float(one), float(other)))
            heated.append((float(np.expm1((mine - theirs) / heat).sum()), len(states)))
        mean = sum(total for total, _ in heated) / sum(number for _, number in heated)
        centred = [total - mean * number for total, number in heated]
        for name, values in zip(found, (*zip(*scores, strict=True), centred), strict=True):
            one = pull_of(told, values)
            found[name].append((one.interval(_CONFIDENCE), one.effective / len(told)))
    return {name: [kl, *_figures(said, truth)] for name, said in found.items()}


PARTS = {"estimators": estimators, "parties": parties, "temperature": temperature, "vetoes": vetoes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=PARTS, default="estimators")
    arguments = parser.parse_args()
    for row in PARTS[arguments.part](arguments.draws, arguments.seed):
        print(" | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row), flush=True)


if __name__ == "__main__":
    main()
