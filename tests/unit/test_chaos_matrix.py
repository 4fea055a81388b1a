"""What the chaos matrix draws: from its seed alone, each row once, and no pair that is in its own way."""

import random

from tests.chaos.faults import ROWS
from tests.chaos.matrix import cells, goes_with


def drawn(number: int, seed: int, paired: int) -> list[tuple[tuple[str, str, str], ...]]:
    made = cells(number, random.Random(seed), paired)
    return [tuple((one.process, one.action, one.stage) for one in cell.faults) for cell in made]


def test_the_same_seed_draws_the_same_faults_and_another_seed_others() -> None:
    assert drawn(60, 3, 9) == drawn(60, 3, 9) != drawn(60, 4, 9)


def test_each_row_comes_once_before_one_comes_again() -> None:
    for paired in (1, 9):
        found = [(process, action) for cell in drawn(len(ROWS), 5, paired) for process, action, _ in cell]
        assert sorted(found) == sorted(ROWS)


def test_pairs_strike_two_processes_that_can_be_struck_together() -> None:
    pairs = [cell for cell in drawn(10 * len(ROWS), 6, 1) if len(cell) == 2]
    assert len(pairs) > 4 * len(ROWS)
    assert all(goes_with(one[0], other[0]) for one, other in pairs)
