"""Learning gain by cluster: what varies and moves is worth most, and nothing is given up for ever."""

import random
from collections import Counter

from actors.curation.bandit import Gains


def told(gains: Gains | None = None, **outcomes: list[float]) -> Gains:
    gains = Gains() if gains is None else gains
    for cluster, values in outcomes.items():
        for value in values:
            gains.observe(cluster, value)
    return gains


def test_a_coin_that_no_training_moves_is_worth_less_than_a_cluster_that_learns() -> None:
    rng = random.Random(0)
    gains, sums = Gains(), Counter[str]()
    for number in range(400):
        told(gains, coin=[float(rng.random() < 0.5)], learning=[float(rng.random() < number / 600)])
        if number >= 200:
            sums.update(coin=gains.gain("coin"), learning=gains.gain("learning"))
    assert sums["learning"] > 1.3 * sums["coin"] > 0.0


def test_a_cluster_that_is_being_forgotten_comes_back() -> None:
    gains = told(healthy=[1.0] * 200)
    before = gains.gain("healthy")
    told(gains, healthy=[1.0, 0.0] * 8)
    assert gains.gain("healthy") > 5 * before
