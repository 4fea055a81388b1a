"""Faults of every kind, in pairs, on one installation at work: each call is kept once, and learning goes on."""

import os
import random
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.faults import ROWS
from tests.chaos.matrix import Matrix, cells, play, table
from tests.support.patience import Late, within

pytestmark = [
    pytest.mark.chaos, pytest.mark.torch, pytest.mark.promise, pytest.mark.timeout(within(900)),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk: needs root"),
]  # fmt: skip
SEED, MINUTES = 7, 2.0


def test_whatever_is_done_to_it_nothing_is_lost_or_doubled_and_agents_see_no_error(tmp_path: Path) -> None:
    found, figures = play(Matrix(tmp_path / "matrix", SEED), cells(len(ROWS), random.Random(SEED), paired=1), MINUTES)
    table(found, Console(width=170))
    print(figures)
    assert (figures["lost"], figures["doubled"], figures["agent_errors"]) == (0, 0, 0)
    if figures["not_recovered"]:
        raise Late(f"{figures['not_recovered']} of {len(found)} cells did not recover in time")
