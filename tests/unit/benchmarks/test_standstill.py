"""Standing still is a case of the weather: what its cells are, and that it is seen."""

import msgspec

from tests.benchmarks.standstill.__main__ import cells, figures
from tests.simulation.planted import BUGS, play
from tests.simulation.world import Ran, simulate


def small(name: str) -> Ran:
    return simulate(msgspec.structs.replace(cells()[name], least=0), 1)


def test_there_are_seventy_two_cells() -> None:
    assert len(cells()) == 72
    assert len({cell.name for cell in cells().values()}) == 72


def test_learning_from_production_alone_goes_on() -> None:
    ran = small("better-10-1-0")
    assert not ran.stuck
    assert ran.settled == 3
    assert ran.skill > 0.4
    assert 0 < ran.trained <= ran.runs
    assert ran.first_settled is not None
    assert figures([ran])["worst_settled_ratio"] == ran.settled_ratio >= ran.ratio > 0


def test_bad_luck_rejects() -> None:
    assert small("better-10-1-2").counts["reject"] >= 2


def test_a_curator_that_falls_silent_stands_still() -> None:
    cell = msgspec.structs.replace(cells()["better-10-1-0"], most=700)
    assert play(cell, 1, BUGS["a standstill without a word"][1]).broken[0].promise == "silent"
