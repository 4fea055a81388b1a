"""The comparison of a canary with the rest: rarely wrong about an equal, soon sure about a worse one."""

import random

from actors.canary import GROWTH, Arm, Arms, CanarySettings, Looks, worse

SETTINGS = CanarySettings()


def trial(rng: random.Random, canary: float, rest: float, runs: int, *, share: float = 0.1) -> int:
    """Runs of the canary until it is called worse, 0 if it never is in `runs` of them."""
    looks, counts = Looks(), {True: [0, 0], False: [0, 0]}
    while counts[True][1] < runs:
        mine = rng.random() < share
        counts[mine][1] += 1
        counts[mine][0] += rng.random() < (canary if mine else rest)
        arms = Arms(*(Arm(runs=n, judged=n, solved=solved) for solved, n in (counts[True], counts[False])))
        if mine and worse(arms, looks, SETTINGS):
            return counts[True][1]
    return 0


def test_equal_versions_are_told_apart_no_more_often_than_stated():
    for seed, rate in ((1, 0.5), (2, 0.9), (3, 0.98)):
        rng = random.Random(seed)
        wrong = sum(trial(rng, rate, rate, 150) > 0 for _ in range(200))
        assert wrong <= 0.05 * 200, f"{wrong} of 200 at a success rate of {rate}"


def test_a_much_worse_version_is_found_within_a_few_dozen_runs():
    rng = random.Random(4)
    found = sorted(trial(rng, 0.3, 0.85, 200) for _ in range(100))
    assert found[0] >= SETTINGS.first_look
    assert found[90] <= 50


def test_a_better_version_is_never_called_worse_than_an_equal_would_be():
    rng = random.Random(5)
    assert sum(trial(rng, 0.95, 0.7, 150) > 0 for _ in range(100)) == 0


def test_between_two_looks_nothing_is_concluded():
    looks = Looks()
    rest = Arm(runs=100, judged=100, solved=90)
    assert worse(Arms(Arm(10, 0, 10, 9), rest), looks, SETTINGS) == ""
    assert worse(Arms(Arm(int(10 * GROWTH) - 1, 0, int(10 * GROWTH) - 1, 0), rest), looks, SETTINGS) == ""
    assert "failures" in worse(Arms(Arm(int(10 * GROWTH), 0, int(10 * GROWTH), 0), rest), looks, SETTINGS)


def test_too_few_runs_on_either_side_say_nothing():
    assert worse(Arms(Arm(9, 9, 9, 0), Arm(100, 0, 100, 100)), Looks(), SETTINGS) == ""
    assert worse(Arms(Arm(20, 20, 20, 0), Arm(9, 0, 9, 9)), Looks(), SETTINGS) == ""
