"""Does learning from production alone ever stand still? Real actors on a virtual clock, with simulated agents.

    python -m tests.benchmarks.standstill --json build/standstill.json
    python -m tests.benchmarks.standstill --cells better-10-0.05-0 better-100-1-2

A cell is a rate of runs, the share of them that is reported, what the learner makes of them, and how often the gate is
unlucky. It stands still if for three bounds of runs nothing is ordered, judged or swapped, or nothing is ordered in its
last third; the bound is twice the runs of an update and of a full verdict. Exit status 1 if one does.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.benchmarks import report
from tests.benchmarks.standstill import report as shown
from tests.benchmarks.standstill.cell import simulate
from tests.benchmarks.standstill.meter import Ran
from tests.benchmarks.standstill.plan import Cell, cells


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = _options(arguments)
    known = {cell.name: cell for cell in cells()}
    unknown = [name for name in options.cells if name not in known]
    if unknown:
        print(f"no cell {unknown[0]}; there are, among others, {', '.join(list(known)[:3])}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.cells] or list(known.values())
    found = play(chosen, options.seed, options.jobs)
    figures = shown.figures(found) | ({} if options.cells else shown.falls(options.seed))
    shown.show(found)
    report.table("Figures", ("figure", "value"), [(name, f"{value:.4g}") for name, value in figures.items()])
    shown.write(options.json, found, figures, options.seed)
    return int(figures["stuck"] > 0)


def play(chosen: Sequence[Cell], seed: int, jobs: int) -> list[Ran]:
    """All `chosen`, in that order."""
    done: dict[str, Ran] = {}
    # Not forked: another thread may hold a lock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        # Those that take longest begin first.
        longest = sorted(chosen, key=lambda cell: cell.limit, reverse=True)
        waiting = [pool.submit(simulate, cell, seed) for cell in longest]
        for future in as_completed(waiting):
            ran = future.result()
            done[ran.name] = ran
            print(f"{len(done)}/{len(chosen)} {shown.line(ran)}", flush=True)
    return [done[cell.name] for cell in chosen]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = report.arguments(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", nargs="+", default=[], metavar="CELL", help="only these, such as better-10-0.05-0")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cells at a time")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
