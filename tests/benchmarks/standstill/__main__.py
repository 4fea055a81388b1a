"""Does learning from production alone ever stand still? The weather at its mildest, cell by cell.

    python -m tests.benchmarks.standstill --json build/standstill.json
    python -m tests.benchmarks.standstill --only better-10-0.05-0 better-100-1-2

A cell is a rate of runs, the share of them that is reported, what the learner makes of them, and how often the gate is
unlucky; one agent, nothing breaks, nobody lies (`tests.simulation`). It stands still if for three bounds of runs
nothing is ordered, judged or swapped, or nothing is ordered in its last third; the bound is twice the runs of an update
and of a full verdict. Exit status 1 if one does.
"""

import sys
from itertools import product

from tests.simulation import weather
from tests.simulation.plan import Cell

RATES = (0.1, 1.0, 10.0, 100.0)
"""Runs a minute."""
FEEDBACK = (1.0, 0.2, 0.05)
"""Shares of the runs that somebody reports on."""
LUCK = (0, 2)
"""First decisions of the gate that are turned into rejections."""
FALLS = (0.1, 0.05, 0.02)
"""Shares of runs with an outcome at which the sentinel has to find a fall."""


def cells() -> dict[str, Cell]:
    mixes = product(("better", "equal", "worse"), FEEDBACK, RATES, LUCK)
    return {
        f"{scenario}-{rate:g}-{feedback:g}-{luck}": Cell(
            scenario=scenario, rate=rate, feedback=feedback, luck=luck, chain=False, least=3000, bounds=6.0,
            patience=3.0,
        )
        for scenario, feedback, rate, luck in mixes
    }  # fmt: skip


if __name__ == "__main__":
    options = weather.arguments(__doc__ or "").parse_args()
    sys.exit(weather.run("standstill", cells(), FALLS, options))
