"""Runs what is missing, or shows what is there.

    python -m tests.benchmarks.ablation --prepare            once: the checkpoints that cells start from
    python -m tests.benchmarks.ablation [--only long] [--minutes 60] [--workers 2]
    python -m tests.benchmarks.ablation --list | --report

A cell that is done is never run again; one that is cut off is begun anew.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from rich.console import Console

from tests.benchmarks import report
from tests.benchmarks.ablation import bases, plan, show, work
from tests.benchmarks.ablation.loop import Ran, Stopped
from tests.benchmarks.ablation.plan import Cell, Experiment, Setup
from tests.benchmarks.ablation.results import DEFAULT, Results, Runs

GUESS = {"short": 3.0, "long": 6.0}
"""CPU seconds an update, measurements included, before anything has been measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    options = _options(arguments)
    results = Results(options.results)
    chosen = [e for e in plan.experiments() if options.only in (None, e.name)]
    if options.prepare:
        prepare(options.workers)
    elif options.list:
        listing(chosen, results.read(), options.workers)
    elif options.report:
        summarise(results, chosen)
    else:
        return play(chosen, results, options)
    return 0


def prepare(workers: int) -> None:
    """Make the checkpoints that are missing."""
    with _pool(workers) as pool:
        list(pool.map(work.warm_start, bases.WARM_STARTS))
        list(pool.map(work.trained, bases.TRAINED))


def listing(experiments: Sequence[Experiment], done: Runs, workers: int) -> None:
    """What is done, what is missing, and about how long that takes."""
    rows, total, known = [], 0.0, set[str]()
    for experiment in experiments:
        every, wanted = plan.cells(experiment), show.missing(experiment, done, here)
        there = len(every) - len(wanted)
        # A cell that experiments share is run for the first that wants it.
        missing = [cell for cell in wanted if cell.id not in known]
        known |= {cell.id for cell in missing}
        seconds = sum(estimate(cell.setup, done) for cell in missing)
        total += seconds
        shared = len(every) - there - len(missing)
        rows.append((experiment.name, len(every), there, shared, len(missing), seconds / 60 / workers))
    report.table(
        "cells", ("experiment", "cells", "done", "run above", "missing", f"minutes with {workers} workers"), rows
    )
    print(f"in all about {total / 3600 / workers:.1f} hours")
    for path in bases.missing():
        print(f"not prepared: {path.name}")


def here(cell: Cell) -> str:
    """The checkpoint that `cell` would start from on this machine."""
    return bases.digest(work.start(cell))


def estimate(setup: Setup, done: Runs) -> float:
    """CPU seconds that a cell will take, by what cells of the same desk took for an attempt played."""
    alike = [one for one in done.values() if one.setup.get("families", "ABC") == setup.families]
    if alike:
        spent = sum(one.ran.seconds for one in alike)
        return spent * _attempts(setup) / sum(_attempts(plan.read_setup(one.setup)) for one in alike)
    return setup.updates * GUESS["long" if "L" in setup.families else "short"]


def summarise(results: Results, experiments: Sequence[Experiment]) -> None:
    """Tables on the screen, curves beside the results, figures into them."""
    done, console = results.read(), Console()
    console.width = max(console.width, 150)  # no terminal: tables would be cut to 80
    show.tables(experiments, done, console)
    every = plan.experiments()
    figures = show.figures(every, done)
    results.set_figures(figures, sorted({one.seed for one in done.values()}))
    for name, value in figures.items():
        console.print(f"{name}: {value:.3f}")
    if missing := {"credit_saving_long", "drift_gain_16"} - figures.keys():
        console.print(f"missing, for want of finished pairs: {', '.join(sorted(missing))}")
    for path in show.curves(experiments, done, results.path.parent):
        console.print(f"curves in {path.name}")


def play(experiments: Sequence[Experiment], results: Results, options: argparse.Namespace) -> int:
    """Run missing cells until all are done or the time is up."""
    done = results.read()
    waiting: dict[str, Cell] = {}
    for experiment in experiments:
        for cell in show.missing(experiment, done, here):
            if not options.arm or cell.arm in options.arm:
                waiting.setdefault(cell.id, cell)
    queue = list(waiting.values())
    end = time.time() + options.minutes * 60 if options.minutes else None
    print(f"{len(queue)} cells to run", flush=True)
    failed = 0
    with _pool(options.workers) as pool:
        flying: dict[Future[Ran], Cell] = {}
        while queue or flying:
            while queue and len(flying) < options.workers:
                cell = queue.pop(0)
                if end is not None and time.time() + estimate(cell.setup, done) > end:
                    print(f"no time left for {cell.name}", flush=True)
                    queue.clear()
                    break
                flying[pool.submit(work.play_cell, cell, end)] = cell
            landed, _ = wait(flying, return_when=FIRST_COMPLETED) if flying else ((), ())
            for future in landed:
                cell = flying.pop(future)
                try:
                    ran = future.result()
                except Stopped:
                    print(f"stopped {cell.name}", flush=True)
                except bases.BaseMissing as error:
                    print(error, file=sys.stderr, flush=True)
                    return 2
                except Exception as error:  # one cell's failure must not cost the night
                    failed += 1
                    print(f"FAILED {cell.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                else:
                    kept = results.add(cell, here(cell), ran)
                    done[kept.id, kept.base] = kept
                    print(f"done {cell.name}: {ran.points[-1].success:.2f}, {ran.seconds:.0f} CPU-s", flush=True)
    return 1 if failed else 0


def _attempts(setup: Setup) -> float:
    return setup.updates * (3 * setup.groups * setup.group_size + setup.eval_tasks / setup.eval_every)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, not forked: a forked torch may hang in its own locks.
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=spawn, initializer=work.die_with_parent)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [experiment.name for experiment in plan.experiments()]
    parser = argparse.ArgumentParser(prog="ablation", description="What of the learner helps, and what breaks it.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prepare", action="store_true", help="make the checkpoints that cells start from")
    what.add_argument("--list", action="store_true", help="show what is done and what is missing")
    what.add_argument("--report", action="store_true", help="tables, curves and figures of what is done")
    parser.add_argument("--only", choices=names, metavar="EXPERIMENT", help=", ".join(names))
    parser.add_argument("--arm", action="append", metavar="ARM", help="only this arm; may be given several times")
    parser.add_argument("--minutes", type=float, help="begin nothing that would take longer, and stop then")
    parser.add_argument("--workers", type=int, default=2, help="processes, one torch thread each")
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
