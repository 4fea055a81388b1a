"""Runs what is missing, or shows what is there.

    python -m tests.benchmarks.ablation --prepare            once: the checkpoints that cells start from
    python -m tests.benchmarks.ablation [--only long] [--minutes 60] [--workers 2]
    python -m tests.benchmarks.ablation --report

A cell that is done is never run again; one that is cut off is begun anew.
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.benchmarks.ablation import bases, plan, work
from tests.benchmarks.ablation.loop import Ran, Stopped
from tests.benchmarks.ablation.plan import Cell, Experiment
from tests.benchmarks.ablation.results import DEFAULT, Results, show


def main() -> int:
    options = _options()
    results = Results(options.results)
    chosen = [experiment for experiment in plan.experiments() if options.only in (None, experiment.name)]
    if options.report:
        show(chosen, results.read())
        return 0
    # Spawned, not forked: a forked torch may hang in its own locks.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=spawn, initializer=work.die_with_parent) as pool:
        if options.prepare:
            list(pool.map(bases.make_warm_start, bases.WARM_STARTS))
            list(pool.map(bases.make_trained, bases.TRAINED))
            return 0
        return play(pool, chosen, results, time.time() + options.minutes * 60 if options.minutes else None)


def play(pool: ProcessPoolExecutor, experiments: Sequence[Experiment], results: Results, end: float | None) -> int:
    """Run missing cells until all are done or it is `end`, unix seconds; 1 if one failed."""
    done = results.read()
    wanted = {cell.id: cell for experiment in experiments for cell in plan.cells(experiment) if cell.id not in done}
    print(f"{len(wanted)} cells to run", flush=True)
    flying: dict[Future[Ran], Cell] = {pool.submit(work.play_cell, cell, end): cell for cell in wanted.values()}
    failed = 0
    for future in as_completed(flying):
        cell = flying[future]
        try:
            ran = future.result()
        except Stopped:
            print(f"stopped {cell.name}", flush=True)
        except Exception as error:  # one cell's failure must not cost the night
            failed += 1
            print(f"FAILED {cell.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        else:
            results.add(cell, ran)
            print(f"done {cell.name}: {ran.points[-1].success:.2f}, {ran.seconds:.0f} CPU-s", flush=True)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    names = [experiment.name for experiment in plan.experiments()]
    parser = argparse.ArgumentParser(prog="ablation", description="What of the learner helps.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prepare", action="store_true", help="make the checkpoints that cells start from")
    what.add_argument("--report", action="store_true", help="tables of what is done")
    parser.add_argument("--only", choices=names, metavar="EXPERIMENT", help=", ".join(names))
    parser.add_argument("--minutes", type=float, help="stop then")
    parser.add_argument("--workers", type=int, default=2, help="processes, one torch thread each")
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
