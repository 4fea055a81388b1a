"""A cluster has fallen when the weights after a change succeed at it less than those before, beyond chance."""

import random
from collections.abc import Iterator

import pytest

from actors.curation.regressions import Regressions


def played(*eras: tuple[int, float, int], source: str = "production") -> Regressions:
    """Eras of (version, success, outcomes), spread evenly."""
    made = Regressions()
    for version, success, count in eras:
        for number in range(count):
            made.observe(source, "c", float(int((number + 1) * success) > int(number * success)), version)
    return made


@pytest.mark.parametrize("source", ["production", "sandbox"])
def test_a_fall_after_a_swap_is_seen(source: str) -> None:
    assert played((1, 0.9, 40), (2, 0.5, 44), source=source).fallen("c")


def test_a_rise_and_the_same_again_are_no_fall() -> None:
    assert not played((1, 0.5, 40), (2, 0.9, 40)).fallen("c")
    assert not played((1, 0.5, 40), (2, 0.5, 40)).fallen("c")


def test_a_fall_within_one_version_is_none_of_a_swap() -> None:
    assert not played((1, 0.9, 40), (1, 0.1, 40)).fallen("c")


def test_it_lasts_until_success_is_back_where_it_fell_from_and_a_new_low_is_no_new_normal() -> None:
    low = (1, 0.9, 40), (2, 0.4, 40), (3, 0.4, 40), (4, 0.4, 40)
    assert played(*low).fallen("c")
    assert not played(*low, (5, 0.9, 40)).fallen("c")


def test_few_outcomes_are_no_fall() -> None:
    assert not played((1, 1.0, 40), (2, 0.0, 11)).fallen("c")
    assert played((1, 1.0, 40), (2, 0.0, 12)).fallen("c")


def test_a_tool_that_is_away_for_eight_runs_is_no_fall() -> None:
    assert not played((1, 0.95, 40), (2, 0.0, 8), (2, 0.95, 200)).fallen("c")


def test_late_outcomes_of_old_weights_belong_to_the_past() -> None:
    made = played((1, 0.9, 40), (2, 0.9, 40))
    for _ in range(40):
        made.observe("production", "c", 0.0, 1)
    assert not made.fallen("c")


def test_unknown_weights_and_no_numbers_say_nothing() -> None:
    made = played((1, 0.9, 40))
    for _ in range(40):
        made.observe("production", "c", 0.0, -1)
        made.observe("production", "c", float("nan"), 2)
    assert not made.fallen("c")


@pytest.mark.parametrize(("success", "runs"), [(0.6, 32), (0.6, 256), (0.9, 64)])
def test_chance_alone_is_taken_for_a_fall_in_one_era_of_a_hundred_at_most(success: float, runs: int) -> None:
    rng, false = random.Random(3), 0
    for _ in range(600):
        made = Regressions()
        for version in (1, 2):
            fallen = False
            for _ in range(runs):
                made.observe("production", "c", float(rng.random() < success), version)
                fallen |= made.fallen("c")
            false += fallen
    # 600 eras at 1 %: more than 12 have a chance below 1 %.
    assert false <= 12


def test_what_is_remembered_is_bounded() -> None:
    made = Regressions(limit=2)
    for name in "abc":
        for version, outcome in ((1, 1.0), (2, 0.0)):
            for _ in range(20):
                made.observe("sandbox", name, outcome, version)
    assert made.clusters == ("b", "c")


def bursts(rng: random.Random) -> Iterator[float]:
    """Nine of ten succeed, but for stretches of five of which four of five fail, one outcome in forty."""
    left = 0
    while True:
        left = 5 if not left and rng.random() < 1 / 200 else max(0, left - 1)
        yield float(rng.random() < (0.2 if left else 0.9))


def test_what_fails_together_is_seldom_taken_for_a_fall_of_any_of_thirty_kinds() -> None:
    false = 0
    for seed in range(12):
        rng, made = random.Random(seed), Regressions()
        streams = [bursts(random.Random(f"{seed} {kind}")) for kind in range(30)]
        for version in range(4):
            before, fallen = set(made.clusters), False
            for kind in rng.choices(range(30), [(kind + 1) ** -0.7 for kind in range(30)], k=1920):
                made.observe("production", f"c{kind}", next(streams[kind]), version)
                fallen |= made.fallen(f"c{kind}") and f"c{kind}" not in before
            false += fallen
    # 36 eras; at a percent a kind it was one in four of them.
    assert false <= 4


@pytest.mark.parametrize("one", [True, False])
def test_attempts_at_one_task_are_one_outcome(one: bool) -> None:
    rng, made, false = random.Random(1), Regressions(), 0
    for version in range(100):
        before = made.fallen("c")
        for task in range(3):
            hard = rng.random()
            for attempt in range(8):
                request = f"{version}-{task}" if one else f"{version}-{task}-{attempt}"
                made.observe("sandbox", "c", float(rng.random() < hard), version, request)
        false += made.fallen("c") and not before
    assert (false == 0) == one, "tasks are as hard as they happen to be"


def test_a_fall_of_tasks_of_like_difficulty_is_seen_in_the_sandbox() -> None:
    rng, made = random.Random(2), Regressions()
    for version in range(60):
        for task in range(3):
            for _ in range(8):
                made.observe(
                    "sandbox", "c", float(rng.random() < (0.9 if version < 40 else 0.3)), version, f"{version} {task}"
                )
    assert made.fallen("c")


def test_versions_with_few_outcomes_are_one_era() -> None:
    assert played((1, 0.9, 40), *((version, 0.3, 4) for version in range(2, 12))).fallen("c")


def test_the_more_kinds_there_are_the_more_it_takes() -> None:
    def after(kinds: int) -> bool:
        made = Regressions()
        for kind in range(kinds):
            for version in (1, 2):
                for _ in range(16):
                    made.observe("production", f"o{kind}", 1.0, version)
        for version, success, count in ((1, 0.9, 40), (2, 0.5, 28)):
            for number in range(count):
                made.observe("production", "c", float(int((number + 1) * success) > int(number * success)), version)
        return made.fallen("c")

    assert after(0)
    assert not after(300)
