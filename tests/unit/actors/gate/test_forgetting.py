"""Families of tasks that the best version could do."""

import random

from actors.gate.forgetting import _FAMILYWISE, _LEAST, _MOST, Family, ForgettingSettings, forgetting

SETTINGS = ForgettingSettings()


def family(name: str, mine: float, theirs: float, tasks: int, seed: int = 0) -> Family:
    rng = random.Random(f"{name}-{seed}")

    def drawn(rate: float) -> list[float]:
        return [float(rng.random() < rate) for _ in range(tasks)]

    return Family(name=name, candidate=drawn(mine), reference=drawn(theirs))


def test_a_candidate_that_lost_one_family_is_rejected_although_it_gained_on_average():
    families = {
        "a": family("book", 1.0, 0.7, 60),
        "b": family("cancel", 0.2, 0.9, 30),
        "c": family("find", 1.0, 0.7, 60),
    }
    suite = forgetting(families, SETTINGS)
    assert suite.decision == "reject"
    assert '"cancel"' in suite.reason
    assert "30 tasks" in suite.reason
    assert suite.figures["families_lost"] == 1
    assert suite.figures["family_b_high"] < 0


def test_a_family_that_may_have_fallen_is_held_until_it_is_shown():
    suite = forgetting({"a": family("book", 0.8, 0.8, 10)}, SETTINGS)
    assert suite.decision == "hold"
    assert "not yet shown" in suite.reason
    assert forgetting({"a": family("book", 0.9, 0.8, 100)}, SETTINGS).decision == "promote"


def test_a_family_that_the_best_version_could_not_do_is_not_held_up():
    suite = forgetting({"a": family("book", 0.0, 0.4, 40)}, SETTINGS)
    assert suite.decision == "promote"
    assert suite.figures["families_healthy"] == 0
    assert "family_a_difference" in suite.figures


def test_a_family_with_few_tasks_is_counted_and_not_judged():
    suite = forgetting({"a": family("book", 0.0, 1.0, _LEAST - 1)}, SETTINGS)
    assert (suite.decision, suite.figures["families_small"]) == ("promote", 1.0)


def test_many_equal_families_are_rejected_over_one_no_more_often_than_stated():
    rejected = 0
    for seed in range(200):
        families = {str(n): family(str(n), 0.8, 0.8, 30, seed) for n in range(4)}
        rejected += forgetting(families, SETTINGS).decision == "reject"
    assert rejected <= _FAMILYWISE * 200


def test_the_largest_families_are_watched_if_there_are_more_than_that():
    families = {str(n): family(str(n), 0.8, 0.8, 10 + n) for n in range(30)}
    figures = forgetting(families, SETTINGS).figures
    assert figures["families_unwatched"] == 30 - _MOST
    assert "family_29_tasks" in figures
    assert "family_0_tasks" not in figures
