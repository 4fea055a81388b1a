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
_SHARE = 0.02
"""Of the runs that are reported when a fall from 90 to 10 % must be found."""


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--cells", type=int, default=DESIGN, help="of the design; more are further mixes")
    parser.add_argument("--only", nargs="+", default=[], metavar="CELL", help="only these cells of the design, by name")
    options = parser.parse_args()
    known = {cell.name: cell for cell in design(options.seed, options.cells)}
    found = play([known[name] for name in chosen(options.only, known)], options.seed, options.jobs)
    figures = shown(found)
    if not options.only:
        figures["fall_found_2pct"] = falls(_SHARE, seed=options.seed).found
    tell("weather", found, figures, options)
    return int(figures["stuck"] > 0 or figures["broken"] > 0)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what everything that plays cells takes."""
    parser = report.arguments(description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cells at a time")
    return parser


def chosen(names: Sequence[str], known: Mapping[str, Cell]) -> Sequence[str]:
    """`names`, or all that are `known`; exits with status 2 at one that is not."""
    for name in names:
        if name not in known:
            print(f"no cell {name}; there are, among others, {', '.join(list(known)[:3])}", file=sys.stderr)
            sys.exit(2)
    return names or list(known)


def tell(name: str, found: Sequence[Ran], figures: dict[str, float], options: argparse.Namespace) -> None:
    """Print the tables, with what is wrong, and write the figures and the cells."""
    report.table(name, _COLUMNS, [_row(ran) for ran in found], Console(width=232))
    for ran in found:
        for broken in ran.broken:
            print(f"{ran.name}, seed {ran.seed}: {broken.promise}: {broken.what} (run {broken.runs})")
        if ran.stuck:
            print(f"{ran.name}, seed {ran.seed}: {ran.stuck}; status says: {ran.says}")
    report.table("Figures", ("figure", "value"), [(name, f"{value:.4g}") for name, value in figures.items()])
    report.write(options.json, name, figures, [options.seed], cells=msgspec.to_builtins(found))


def play(chosen: Sequence[Cell], seed: int, jobs: int) -> list[Ran]:
    """All `chosen`, in that order."""
    done: dict[str, Ran] = {}
    # Not forked: another thread may hold a lock.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Those that may take longest begin first.
        waiting = [pool.submit(simulate, cell, seed) for cell in sorted(chosen, key=lambda one: -one.limit)]
        for future in as_completed(waiting):
            ran = future.result()
            done[ran.name] = ran
            print(f"{len(done)}/{len(chosen)} {_line(ran)}", flush=True)
    return [done[cell.name] for cell in chosen]


def shown(found: Sequence[Ran]) -> dict[str, float]:
    """The figures that claims rest on."""
    # What is to be promoted, and whose way there nothing but the weather hinders.
    wanted = [ran for ran in found if ran.scenario in ("better", "equal") and not ran.faults]
    quiet = [ran for ran in found if ran.scenario in ("better", "equal") and "liar" not in ran.name]
    weeks = sum(ran.days for ran in quiet) / 7.0
    days, seconds = sum(ran.days for ran in found), sum(ran.seconds for ran in found)
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
        "days_per_second": days / seconds if seconds else 0.0,
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


def _line(ran: Ran) -> str:
    promoted = "never promoted" if ran.first_promotion is None else f"promoted at run {ran.first_promotion[0]}"
    trouble = "".join(f", BROKEN: {one.promise}: {one.what}" for one in ran.broken[:1])
    return f"{ran.name:60} {ran.runs:6} runs, {ran.days:5.1f} days in {ran.seconds:5.1f} s, {promoted}" + (
        f", STUCK: {ran.stuck}" if ran.stuck else trouble
    )


if __name__ == "__main__":
    sys.exit(main())
