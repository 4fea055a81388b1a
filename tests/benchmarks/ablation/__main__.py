"""Runs what is missing, or shows what is there.

    python -m tests.benchmarks.ablation --prepare            once: the checkpoints that cells start from
    python -m tests.benchmarks.ablation [--only long] [--minutes 60] [--workers 2]
    python -m tests.benchmarks.ablation --report

A cell that is done is never run again; one that is cut off is begun anew.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from tests.benchmarks import report
from tests.benchmarks.ablation import plan
from tests.benchmarks.ablation.loop import Curve

RESULTS = plan.ROOT.with_suffix(".json")
"""The curve of each finished cell, by its key."""
TARGET = 0.8
"""The success that updates are counted to."""
RESAMPLES, BOOTSTRAP_SEED = 10_000, 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="ablation", description="What of the learner helps.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prepare", action="store_true", help="make the checkpoints that cells start from")
    what.add_argument("--report", action="store_true", help="tables of what is done")
    parser.add_argument("--only", nargs=1, choices=list(plan.EXPERIMENTS), default=list(plan.EXPERIMENTS))
    parser.add_argument("--minutes", type=float, help="stop then")
    parser.add_argument("--workers", type=int, default=2, help="processes, one torch thread each")
    options = parser.parse_args()
    if options.report:
        for experiment in options.only:
            show(experiment, finished())
        return 0
    # Spawned, not forked: a forked torch may hang in its own locks.
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        if options.prepare:
            list(pool.map(plan.prepare, range(plan.WARM_STARTS)))
            return 0
        return play(pool, options.only, time.time() + options.minutes * 60 if options.minutes else None)


def finished() -> dict[str, Curve]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def play(pool: ProcessPoolExecutor, experiments: Sequence[str], end: float | None) -> int:
    """Run missing cells until all are done or it is `end`, unix seconds; 1 if one failed."""
    done = finished()
    wanted = [cell for experiment in experiments for cell in plan.cells(experiment) if cell.key not in done]
    print(f"{len(wanted)} cells to run", flush=True)
    flying = {pool.submit(plan.play, cell, end): cell for cell in wanted}
    failed = 0
    for future in as_completed(flying):
        cell = flying[future]
        try:
            curve = future.result()
        except Exception as error:  # one cell's failure must not cost the night
            failed += 1
            print(f"FAILED {cell.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        if curve is not None:
            done[cell.key] = curve
            aside = RESULTS.with_suffix(".part")
            aside.write_text(json.dumps(done, indent=1), encoding="utf-8")
            os.replace(aside, RESULTS)
        print(f"{cell.name}: {'stopped' if curve is None else f'done, {curve[-1][1]:.2f}'}", flush=True)
    return 1 if failed else 0


def show(experiment: str, done: dict[str, Curve]) -> None:
    """A table as far as it has run; what is missing is never filled in."""
    arms: dict[str, dict[int, Curve]] = {}
    for cell in plan.cells(experiment):
        curves = arms.setdefault(cell.arm, {})
        if cell.key in done:
            curves[cell.seed] = done[cell.key]
    first = arms["GRPO"]
    rows: list[list[object]] = []
    for arm, curves in arms.items():
        seeds = sorted(first.keys() & curves.keys())
        pairs = np.array([(updates_to(first[seed]), updates_to(curves[seed])) for seed in seeds])
        ends = [100 * curve[-1][1] for curve in curves.values()]
        saved = saving(pairs) if len(pairs) > 1 and curves is not first and pairs[:, 0].any() else "-"
        rows.append([arm, len(curves), _spread(ends), _spread([*map(updates_to, curves.values())]), saved])
    columns = ("arm", "cells", "success in the end, %", f"updates to {TARGET:.0%}", "saved of the first's")
    report.table(f"{experiment}: {plan.EXPERIMENTS[experiment][0]}", columns, rows)


def updates_to(curve: Curve) -> float:
    """Updates until the curve, each point the mean of it and its neighbours, reaches `TARGET`; if never, the last.

    One measurement has a standard error of 3 to 5 points, and a first crossing in raw ones would be a lucky draw's.
    """
    values = [success for _, success in curve]
    for i, (update, success) in enumerate(curve):
        if (success if i == 0 else np.mean(values[i - 1 : i + 2])) >= TARGET:
            return float(update)
    return float(curve[-1][0])


def saving(pairs: np.ndarray) -> str:
    """Which share of the first's updates the second did without, `(n, 2)`, with its bootstrapped 95 % interval."""
    drawn = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    means = np.concatenate([pairs.mean(0)[None], pairs[drawn].mean(1)])
    saved = 1 - means[:, 1] / np.maximum(means[:, 0], 1e-9)
    low, high = np.percentile(saved[1:], (2.5, 97.5))
    return f"{saved[0]:.2f} [{low:.2f}, {high:.2f}]"


def _spread(values: Sequence[float]) -> str:
    """Median, lowest and highest."""
    return f"{np.median(values):.0f} ({min(values):.0f}-{max(values):.0f})" if values else "-"


if __name__ == "__main__":
    sys.exit(main())
