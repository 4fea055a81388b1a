"""Does learning from production alone ever stand still? The weather at its mildest, cell by cell.

    python -m tests.benchmarks.standstill --json build/standstill.json
    python -m tests.benchmarks.standstill --cells better-10-0.05-0 better-100-1-2

A cell is a rate of runs, the share of them that is reported, what the learner makes of them, and how often the gate is
unlucky; one agent, nothing breaks, nobody lies (`tests.simulation`). It stands still if for three bounds of runs
nothing is ordered, judged or swapped, or nothing is ordered in its last third; the bound is twice the runs of an update
and of a full verdict. Exit status 1 if one does.
"""

import sys
from collections.abc import Sequence
from itertools import product

import msgspec

from tests.benchmarks.standstill.falls import falls
from tests.simulation import weather
from tests.simulation.plan import Cell
from tests.simulation.world import Ran

RATES = (0.1, 1.0, 10.0, 100.0)
"""Runs a minute."""
FEEDBACK = (1.0, 0.2, 0.05)
"""Shares of the runs that somebody reports on."""
LUCK = (0, 2)
"""First decisions of the gate that are turned into rejections."""
FALLS = (0.1, 0.05, 0.02)
"""Shares of runs with an outcome at which the sentinel has to find a fall."""


def cells() -> dict[str, Cell]:
    """All of them, by name."""
    mixes = product(("better", "equal", "worse"), FEEDBACK, RATES, LUCK)
    return {
        f"{scenario}-{rate:g}-{feedback:g}-{luck}": Cell(
            scenario=scenario, rate=rate, feedback=feedback, luck=luck, chain=False, least=3000, bounds=6.0,
            patience=3.0,
        )
        for scenario, feedback, rate, luck in mixes
    }  # fmt: skip


def main() -> int:
    """Entry point; returns the exit status."""
    parser = weather.arguments(__doc__ or "")
    parser.add_argument("--cells", nargs="+", default=[], metavar="CELL", help="only these, such as better-10-0.05-0")
    options = parser.parse_args()
    known = cells()
    names = weather.chosen(options.cells, known)
    played = weather.play([known[name] for name in names], options.seed, options.jobs)
    found = [msgspec.structs.replace(ran, name=name) for name, ran in zip(names, played, strict=True)]
    shown = figures(found)
    if not options.cells:
        shown |= {f"fall_found_{share * 100:g}pct": falls(share, seed=options.seed).found for share in FALLS}
    weather.tell("standstill", found, shown, options)
    return int(shown["stuck"] > 0)


def figures(found: Sequence[Ran]) -> dict[str, float]:
    """The figures that claims rest on. Ratios are over the cells where something is to be promoted; a cell without a
    promotion counts with the runs that it had."""
    wanted = [ran for ran in found if ran.scenario != "worse"]
    return {
        "cells": len(found),
        "stuck": sum(bool(ran.stuck) for ran in found),
        "broken": sum(bool(ran.broken) for ran in found),
        "never_promoted": sum(ran.first_promotion is None for ran in wanted),
        "worst_ratio": max((ran.ratio for ran in wanted), default=0.0),
        "worst_settled_ratio": max((ran.settled_ratio for ran in wanted), default=0.0),
        "worst_quiet": max((ran.quiet for ran in found), default=0.0),
        # Learning that goes on may still go the wrong way: version 0 succeeds in 0.4 of its runs.
        "lowest_success": min((ran.skill for ran in found), default=0.0),
    }


if __name__ == "__main__":
    sys.exit(main())
