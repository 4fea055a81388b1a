"""Does it learn, stay honest and stay whole in production's weather? The real actors on virtual time.

    python -m tests.simulation.weather --json build/weather.json
    python -m tests.simulation.weather --cells 200 --seed 3
    python -m tests.simulation.weather --only worse-1-0.2-4h-bursts-10-bfcl-liar:version    # one cell, again

A cell is a mix of rate, feedback, delay, arrivals, agents, goals, reporters, engines, faults, skew of reports, a party
that lies, and of what updates make of the policy; the default 40 have every possible pair of levels of any two of
these. Each promise of tests/simulation/invariants.py is looked at after each event. The same seed gives the same cell,
event for event.

Exit status 1 if a promise was broken or a cell stands still.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import msgspec
from rich.console import Console

from tests.benchmarks import report
from tests.benchmarks.standstill.falls import falls
from tests.simulation.plan import DESIGN, Cell, design
from tests.simulation.world import Ran, simulate

_COLUMNS = (
    "cell", "runs", "days", "reported", "effect", "first", "hours", "ratio", "a day", "stayed", "undone", "told",
    "alarms", "success", "stuck", "broken",
)  # fmt: skip
_ACTS = ("rollback", "freeze", "drift")


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--cells", type=int, default=DESIGN, help="of the design; more are further mixes")
    options = parser.parse_args()
    cells = {cell.name: cell for cell in design(options.seed, options.cells)}
    return run("weather", cells, (0.02,), options)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what `run` asks for."""
    parser = report.arguments(description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], metavar="CELL", help="only these cells, by name")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cells at a time")
    return parser


def run(name: str, cells: Mapping[str, Cell], shares: Sequence[float], options: argparse.Namespace) -> int:
    """Play cells, print the tables, with what is wrong, and write the figures; returns the exit status.

    Args:
        shares: of the runs that are reported when a fall from 90 to 10 % must be found.
    """
    for cell in options.only:
        if cell not in cells:
            print(f"no cell {cell}; there are, among others, {', '.join(list(cells)[:3])}", file=sys.stderr)
            return 2
    names = options.only or list(cells)
    played = play([cells[cell] for cell in names], options.seed, options.jobs)
    found = [msgspec.structs.replace(ran, name=cell) for cell, ran in zip(names, played, strict=True)]
    figures = shown(found)
    for share in () if options.only else shares:
        figures[f"fall_found_{share * 100:g}pct"] = falls(share, seed=options.seed).found
    report.table(name, _COLUMNS, [_row(ran) for ran in found], Console(width=232))
    for ran in found:
        for broken in ran.broken:
            print(f"{ran.name}, seed {ran.seed}: {broken.promise}: {broken.what} (run {broken.runs})")
        if ran.stuck:
            print(f"{ran.name}, seed {ran.seed}: {ran.stuck}; status says: {ran.says}")
    report.table("Figures", ("figure", "value"), [(name, f"{value:.4g}") for name, value in figures.items()])
    report.write(options.json, name, figures, [options.seed], cells=msgspec.to_builtins(found))
    return int(figures["stuck"] > 0 or figures["broken"] > 0)


def play(chosen: Sequence[Cell], seed: int, jobs: int) -> list[Ran]:
    done: dict[str, Ran] = {}
    # Not forked: another thread may hold a lock.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Those that may take longest begin first.
        waiting = [pool.submit(simulate, cell, seed) for cell in sorted(chosen, key=lambda one: -one.limit)]
        for future in as_completed(waiting):
            ran = future.result()
            done[ran.name] = ran
            trouble = "BROKEN" if ran.broken else "STUCK" if ran.stuck else "ok"
            print(
                f"{len(done)}/{len(chosen)} {ran.name}: {ran.runs} runs in {ran.seconds:.1f} s, {trouble}", flush=True
            )
    return [done[cell.name] for cell in chosen]


def shown(found: Sequence[Ran]) -> dict[str, float]:
    """The figures that claims rest on."""
    # What is to be promoted, and whose way there nothing but the weather hinders.
    wanted = [ran for ran in found if ran.scenario in ("better", "equal") and not ran.faults]
    quiet = [ran for ran in found if ran.scenario in ("better", "equal") and "liar" not in ran.name]
    weeks = sum(ran.days for ran in quiet) / 7.0
    fallen = [ran for ran in found if ran.scenario == "fall" and ran.undone is not None]
    agents = [ran for ran in found if ran.scenario == "one_agent" and ran.told is not None]
    return {
        "cells": len(found),
        "broken": sum(bool(ran.broken) for ran in found),
        "stuck": sum(bool(ran.stuck) for ran in found),
        "worst_ratio": max((ran.ratio for ran in wanted), default=0.0),
        "effect_least": min((ran.effect for ran in found if ran.effect is not None), default=0.0),
        "falls_undone": len(fallen),
        "falls": sum(ran.scenario == "fall" and ran.planted for ran in found),
        "agents_told": len(agents),
        "agents": sum(ran.scenario == "one_agent" and ran.planted for ran in found),
        "false_alarms_per_week": sum(_alarms(ran) for ran in quiet) / weeks if weeks else 0.0,
        "weeks_without_cause": weeks,
    }


def _alarms(ran: Ran) -> int:
    return sum(number for name, number in ran.found.items() if name.split()[0] in _ACTS)


def _row(ran: Ran) -> tuple[object, ...]:
    first = ran.first_promotion
    return (
        ran.name, ran.runs, f"{ran.days:.1f}", ran.reported, "-" if ran.effect is None else f"{ran.effect:.0%}",
        "-" if first is None else first[0], "-" if first is None else f"{first[1]:.1f}", f"{ran.ratio:.2f}",
        f"{ran.counts.get('promotion', 0) / ran.days:.1f}" if ran.days else "-", ran.settled,
        "-" if ran.undone is None else ran.undone, "-" if ran.told is None else ran.told, _alarms(ran),
        f"{ran.skill:.0%}", "yes" if ran.stuck else "-", ", ".join(sorted({one.promise for one in ran.broken})) or "-",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
