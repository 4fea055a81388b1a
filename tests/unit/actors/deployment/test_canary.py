"""The comparison of what is on trial with what was: rarely wrong about an equal, soon sure about a worse one."""

import random

from actors.deployment.arms import Arm, Arms
from actors.deployment.canary import GROWTH, CanarySettings, Looks, worse
from actors.statistics.strata import sorted_out

SETTINGS = CanarySettings()
Told = list[tuple[tuple[str, str], bool, float]]
"""(tenant and kind, whether it was on trial, 1 for a failure) of each run."""


def arms(told: Told, errors: Told | None = None) -> Arms:
    """Both sides, each run with an outcome; without `errors` no tool ever answered with one."""
    errors = errors or [(kind, mine, 0.0) for kind, mine, _ in told]

    def arm(mine: bool) -> Arm:
        failed, wrong = (sum(one for _, side, one in runs if side is mine) for runs in (told, errors))
        runs = sum(side is mine for _, side, _ in told)
        return Arm(runs, round(wrong), runs, runs - round(failed))

    return Arms(arm(True), arm(False), sorted_out(told), sorted_out(errors))


def runs(count: int, failed: int, *, mine: bool, kind: str = "") -> Told:
    return [(("tenant", kind), mine, float(n < failed)) for n in range(count)]


def trial(rng: random.Random, mine: float, before: float, *, kinds: tuple[str, ...] = ("a",), most: int = 32) -> int:
    """Runs on trial until it is called worse than 384 runs from before, 0 if it never is in `most` of them.

    Args:
        mine, before: share of successes on either side; tools answer with an error in a tenth of the runs of both.
    """

    def run(side: bool, solved: float) -> tuple[tuple[str, str], bool, float]:
        return ("tenant", rng.choice(kinds)), side, float(rng.random() >= solved)

    told, looks = [run(False, before) for _ in range(384)], Looks()
    errors = [(kind, side, float(rng.random() < 0.1)) for kind, side, _ in told]
    for number in range(1, most + 1):
        told.append(run(True, mine))
        errors.append((told[-1][0], True, float(rng.random() < 0.1)))
        due = SETTINGS.first_look * GROWTH ** min(looks.failures, looks.errors)
        if (number >= due or number == most) and worse(arms(told, errors), looks, SETTINGS, last=number == most):
            return number
    return 0


def test_equal_versions_are_told_apart_no_more_often_than_stated():
    for seed, rate in ((1, 0.5), (2, 0.8), (3, 0.98)):
        rng = random.Random(seed)
        wrong = sum(trial(rng, rate, rate, kinds=("a", "b", "c")) > 0 for _ in range(200))
        assert wrong <= 0.05 * 200, f"{wrong} of 200 at a success rate of {rate}"


def test_a_much_worse_version_is_found_within_a_trial():
    rng = random.Random(4)
    found = [trial(rng, 0.3, 0.85) for _ in range(100)]
    assert sum(number > 0 for number in found) >= 95
    assert min(number for number in found if number) >= SETTINGS.first_look


def test_a_better_version_is_never_called_worse_than_an_equal_would_be():
    rng = random.Random(5)
    assert sum(trial(rng, 0.95, 0.7, most=150) > 0 for _ in range(100)) == 0


def test_between_two_looks_nothing_is_concluded():
    before, looks = runs(100, 10, mine=False), Looks()
    assert worse(arms(before + runs(8, 1, mine=True)), looks, SETTINGS) == ""
    second = int(8 * GROWTH)
    assert worse(arms(before + runs(second - 1, second - 1, mine=True)), looks, SETTINGS) == ""
    assert "failures" in worse(arms(before + runs(second, second, mine=True)), looks, SETTINGS)


def test_too_few_runs_on_either_side_say_nothing():
    assert worse(arms(runs(7, 7, mine=True) + runs(100, 0, mine=False)), Looks(), SETTINGS) == ""
    assert worse(arms(runs(20, 20, mine=True) + runs(7, 0, mine=False)), Looks(), SETTINGS) == ""


def test_like_is_compared_with_like():
    easy, hard = runs(300, 15, mine=False, kind="easy"), runs(80, 40, mine=False, kind="hard")
    harder = runs(32, 16, mine=True, kind="hard")
    assert worse(arms(easy + hard + harder), Looks(), SETTINGS, last=True) == "", "as many fail as before, of this kind"
    assert worse(arms(easy + runs(80, 4, mine=False, kind="hard") + harder), Looks(), SETTINGS, last=True)


def test_a_kind_that_only_one_side_has_says_nothing_and_rare_kinds_are_one():
    before, new = runs(300, 15, mine=False, kind="old"), runs(32, 32, mine=True, kind="new")
    assert worse(arms(before + new), Looks(), SETTINGS, last=True) == ""
    rare = [run for n in range(40) for run in runs(1, n % 10 == 0, mine=False, kind=f"before {n}")]
    after = [run for n in range(32) for run in runs(1, 1, mine=True, kind=f"after {n}")]
    assert worse(arms(rare + after), Looks(), SETTINGS, last=True)
