"""Finished cells in a file, and tables out of them: updates to a success, and what each arm saves against the first."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from tests.benchmarks import report
from tests.benchmarks.ablation.loop import Ran
from tests.benchmarks.ablation.plan import Cell, Experiment, cells

DEFAULT = Path(__file__).parents[3] / "build" / "ablation.json"
TARGET = 0.8
"""The success that updates are counted to."""
RESAMPLES, BOOTSTRAP_SEED = 10_000, 4


class Results:
    """The file: curve and CPU seconds of each finished cell, by its id."""

    def __init__(self, path: Path = DEFAULT) -> None:
        self.path = path

    def read(self) -> dict[str, Ran]:
        return msgspec.json.decode(self.path.read_bytes(), type=dict[str, Ran]) if self.path.exists() else {}

    def add(self, cell: Cell, ran: Ran) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f".{self.path.name}.part")
        aside.write_text(json.dumps(msgspec.to_builtins(self.read() | {cell.id: ran}), indent=1), encoding="utf-8")
        os.replace(aside, self.path)


def show(experiments: Sequence[Experiment], done: dict[str, Ran]) -> None:
    """One table an experiment, as far as it has run; what is missing is never filled in."""
    for experiment in experiments:
        first = next(iter(experiment.arms))
        base = _runs(experiment, first, done)
        rows: list[list[object]] = []
        for arm in experiment.arms:
            runs = _runs(experiment, arm, done)
            pairs = np.array(
                [(updates_to(base[seed]), updates_to(runs[seed])) for seed in sorted(base.keys() & runs.keys())]
            )
            ends = [ran.points[-1].success for ran in runs.values()]
            saved = saving(pairs) if len(pairs) > 1 and arm != first and pairs[:, 0].any() else "-"
            rows.append([arm, len(runs), _spread(ends, 100), _spread([*map(updates_to, runs.values())], 1), saved])
        report.table(
            f"{experiment.name}: {experiment.question}",
            ("arm", "cells", "success in the end, %", f"updates to {TARGET:.0%}", "saved of the first's"),
            rows,
        )


def updates_to(ran: Ran, success: float = TARGET) -> float:
    """Updates until the curve, each point the mean of it and its neighbours, reaches `success`; if never, the last.

    One measurement has a standard error of 3 to 5 points, and a first crossing in raw ones would be a lucky draw's.
    """
    values = [point.success for point in ran.points]
    for i, point in enumerate(ran.points):
        if (values[i] if i == 0 else np.mean(values[i - 1 : i + 2])) >= success:
            return float(point.update)
    return float(ran.points[-1].update)


def saving(pairs: np.ndarray) -> str:
    """Which share of the first's updates the second did without, `(n, 2)`, with its bootstrapped 95 % interval."""
    drawn = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    means = np.concatenate([pairs.mean(0)[None], pairs[drawn].mean(1)])
    saved = 1 - means[:, 1] / np.maximum(means[:, 0], 1e-9)
    low, high = np.percentile(saved[1:], (2.5, 97.5))
    return f"{saved[0]:.2f} [{low:.2f}, {high:.2f}]"


def _runs(experiment: Experiment, arm: str, done: dict[str, Ran]) -> dict[int, Ran]:
    return {cell.seed: done[cell.id] for cell in cells(experiment) if cell.arm == arm and cell.id in done}


def _spread(values: Sequence[float], times: float) -> str:
    """Median, lowest and highest."""
    if not values:
        return "-"
    return f"{times * float(np.median(values)):.0f} ({times * min(values):.0f}-{times * max(values):.0f})"
