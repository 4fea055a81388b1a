"""How good calibrated chances are: Brier skill over the base rate with its lower bound, reliability curve. Pure.

Brier (1950); Murphy (1973), "A New Vector Partition of the Probability Score". The base rate that a chance is held
against is the mean of the same agent's *other* outcomes, so nobody is praised for knowing an agent's average.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import sqrt
from statistics import NormalDist

import msgspec
import numpy as np

from actors.provisional.logistic import Floats
from actors.statistics.parties import set_aside, thinned

LEAST = 30
"""Outcomes without which nothing is said of skill, and of either kind `EITHER`: the normal bound needs them."""
EITHER = 5
ERROR = 0.01
"""One-sided error of a look: so often has a model without skill a lower bound above zero."""
FULL = 0.1
"""Lower bound of the skill from which on the model counts in full; from zero on it counts in proportion."""
BINS = 10


class Bin(msgspec.Struct, frozen=True):
    """Runs with chances in one tenth."""

    chance: float
    """Their mean."""
    success: float
    """What was reported of them."""
    runs: int


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """What held-out chances were worth."""

    outcomes: int
    base: float
    """Mean outcome."""
    brier: float
    skill: float
    """1 - Brier score / that of the base rate; 0 where there is none to speak of."""
    low: float
    high: float
    """Bounds of it, each at `ERROR`."""
    calibration: float
    """Expected calibration error over `BINS` tenths."""
    curve: tuple[Bin, ...]

    @property
    def weight(self) -> float:
        """0 where the lower bound is not above zero, 1 from `FULL` on."""
        return min(1.0, max(0.0, self.low / FULL))


NONE = Skill(outcomes=0, base=0.5, brier=0.25, skill=0.0, low=-1.0, high=1.0, calibration=0.0, curve=())


def others_mean(outcomes: Floats, agents: Sequence[str]) -> Floats:
    """Of each run the mean outcome of its agent's others, pulled towards all agents' others with the weight of two."""
    total, n = float(outcomes.sum()), len(outcomes)
    sums: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for agent, outcome in zip(agents, outcomes, strict=True):
        sums[agent] += float(outcome)
        counts[agent] += 1
    base = np.zeros(n)
    for place, agent in enumerate(agents):
        own = float(outcomes[place])
        everyone = (total - own + 1.0) / (n + 1.0)
        base[place] = (sums[agent] - own + 2.0 * everyone) / (counts[agent] + 1.0)
    return base


def measure(chances: Floats, outcomes: Floats, bases: Floats, parties: Sequence[str], *, error: float = ERROR) -> Skill:
    """Skill of `chances`, `(n,)` each, the oldest first, by the party rule.

    Args:
        bases: what is to be beaten.
        parties: whose word each outcome is.
    """
    newest = list(reversed(parties))
    kept = [len(parties) - 1 - place for place in reversed(thinned(newest))]
    gain = (bases - outcomes) ** 2 - (chances - outcomes) ** 2

    def mean(left_out: Collection[str]) -> float:
        own = [float(gain[place]) for place in kept if parties[place] not in left_out]
        return sum(own) / len(own) if own else float("nan")

    aside = set_aside([parties[place] for place in kept], mean)
    taken = np.array([place for place in kept if parties[place] not in aside], dtype=np.int64)
    if not len(taken):
        return NONE
    own, said, got = outcomes[taken], chances[taken], gain[taken]
    lost = float(((bases[taken] - own) ** 2).mean())
    won = int((own >= 0.5).sum())
    enough = len(own) >= LEAST and min(won, len(own) - won) >= EITHER and lost > 1e-9
    skill = float(got.mean()) / lost if lost > 1e-9 else 0.0
    half = NormalDist().inv_cdf(1.0 - error) * float(got.std(ddof=1)) / sqrt(len(own)) / lost if enough else 1.0
    curve = reliability(said, own)
    return Skill(
        outcomes=len(own), base=float(own.mean()), brier=float(((said - own) ** 2).mean()), skill=skill,
        low=skill - half if enough else -1.0, high=skill + half if enough else 1.0,
        calibration=sum(one.runs * abs(one.chance - one.success) for one in curve) / len(own), curve=curve,
    )  # fmt: skip


def reliability(chances: Floats, outcomes: Floats) -> tuple[Bin, ...]:
    """Chance against success, of tenths that have runs."""
    place = np.minimum((chances * BINS).astype(np.int64), BINS - 1)
    return tuple(
        Bin(float(chances[place == one].mean()), float(outcomes[place == one].mean()), int((place == one).sum()))
        for one in range(BINS)
        if (place == one).any()
    )
