"""Tables, curves and figures out of finished cells. What has not run is said to be missing, never filled in."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.ablation import statistics
from tests.benchmarks.ablation.plan import RUNS_TO, Arm, Cell, Experiment, cells
from tests.benchmarks.ablation.results import Done, Runs
from tests.benchmarks.ablation.statistics import Interval, updates_to

TARGET = 0.8
"""The fixed success that updates are counted to."""
DRIFT_UPDATE = 16
WITHIN = 0.05
"""After a drift: back to this much below what was before."""
GRPO, CREDIT, BOTH, OWN = "GRPO", "+attributing (oracle)", "both (oracle)", "own step (oracle)"


def arm_cells(experiment: Experiment, arm: Arm) -> list[Cell]:
    """The arm's cells, by seed."""
    return [cell for cell in cells(experiment) if cell.arm == arm.name]


def grounds(experiment: Experiment, done: Runs) -> dict[int, str]:
    """For each seed the checkpoint that most arms have run from: those can be compared."""
    bases: dict[int, Counter[str]] = {}
    for cell in cells(experiment):
        bases.setdefault(cell.seed, Counter()).update(base for id_, base in done if id_ == cell.id)
    return {seed: max(sorted(found), key=lambda base: found[base]) for seed, found in bases.items() if found}


def finished(experiment: Experiment, arm: Arm, done: Runs) -> dict[int, Done]:
    """The arm's finished cells by seed; one from another checkpoint than most arms only if there is no other."""
    wanted, found = grounds(experiment, done), dict[int, Done]()
    for cell in arm_cells(experiment, arm):
        runs = [one for (id_, _), one in done.items() if id_ == cell.id]
        if runs:
            found[cell.seed] = max(runs, key=lambda one: (one.base == wanted[cell.seed], one.base))
    return found


def missing(experiment: Experiment, done: Runs, here: Callable[[Cell], str]) -> list[Cell]:
    """Cells that have not run, and those that have run from another checkpoint than the arms that they go with, if the
    others' is here.

    Args:
        here: digest of the checkpoint that a cell would start from.
    """
    wanted, there = grounds(experiment, done), {id_ for id_, _ in done}
    return [
        cell
        for cell in cells(experiment)
        if cell.id not in there or (wanted[cell.seed] == here(cell) and (cell.id, wanted[cell.seed]) not in done)
    ]


HEADLINES = (
    ("", "own step", "own step, drift", OWN, OWN),
    ("rules_", "own step", "own step, drift", "own step (rules)", "own step (rules)"),
    ("paper_", "long", "drift", CREDIT, BOTH),
)
"""What the figures' names begin with; experiments and arms of the saving on the long desk, and of the gain after a
drift. Those without a prefix are of the credit that ships, with labels from the answer key."""


def figures(experiments: Sequence[Experiment], done: Runs) -> dict[str, float]:
    """The headline figures, shares of 1; those without two pairs of runs are left out."""
    found: dict[str, float] = {}
    by_name = {experiment.name: experiment for experiment in experiments}
    for prefix, long, drift, saver, gainer in HEADLINES:
        pairs = _pairs(by_name[long], GRPO, saver, done)
        if len(pairs) >= 2:
            interval = statistics.saving(*zip(*[(_to_target(a), _to_target(b)) for a, b in pairs], strict=True))
            found[f"{prefix}seeds"] = float(len(pairs))
            found |= _figures(f"{prefix}credit_saving_long", interval)
        pairs = _pairs(by_name[drift], GRPO, gainer, done)
        if len(pairs) >= 2:
            interval = statistics.gain(*zip(*[(_after_drift(a), _after_drift(b)) for a, b in pairs], strict=True))
            found[f"{prefix}seeds_drift"] = float(len(pairs))
            found |= _figures(f"{prefix}drift_gain_16", interval)
    return found


def _figures(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def tables(experiments: Sequence[Experiment], done: Runs, console: Console) -> None:
    """One table an experiment, as far as it has run."""
    for experiment in experiments:
        of = sum(len(arm_cells(experiment, arm)) for arm in experiment.arms)
        there = sum(len(finished(experiment, arm, done)) for arm in experiment.arms)
        if not there:
            console.print(f"{experiment.name}: nothing of {of} cells has run")
            continue
        first = experiment.arms[0].setup
        shown = Table(title=f"{experiment.name}: {experiment.question} ({there} of {of} cells)", title_justify="left")
        shown.add_column("arm")
        columns = ["cells", "in the end", f"updates to {TARGET:.0%}", "of them censored"]
        if first.rename:
            columns += [f"at update {DRIFT_UPDATE}", "updates to before - 5 points"]
        columns += ["saved against the first", *first.evaluated] if len(first.evaluated) > 1 else ["saved"]
        for column in columns:
            shown.add_column(column, justify="right")
        for arm in experiment.arms:
            runs = finished(experiment, arm, done)
            if not runs:
                shown.add_row(arm.name, "missing", *[""] * (len(columns) - 1))
            else:
                shown.add_row(arm.name, *_row(experiment, arm, runs, done, len(columns)))
        console.print(shown)
        if experiment.name == "step credit":
            console.print(_by_rate(experiment, done))
    codes = {one.ran.code for one in done.values()}
    if len(codes) > 1:
        console.print(f"[yellow]the cells come from {len(codes)} states of the code: {', '.join(sorted(codes))}")


def _by_rate(experiment: Experiment, done: Runs) -> Table:
    """Runs to each success, arm beside arm at each learning rate, and what the second saved of the first's."""
    shown = Table(title="runs (median, range; + of them censored)", title_justify="left")
    for column in ("success", *(arm.name for arm in experiment.arms), "saved at each rate"):
        shown.add_column(column)
    for success in RUNS_TO:
        row, saved = [f"{success:.0%}"], list[str]()
        for base, other in zip(experiment.arms[::2], experiment.arms[1::2], strict=True):
            counts: list[list[float]] = []
            pairs = _pairs(experiment, base.name, other.name, done)
            for arm, runs in ((base, [one for one, _ in pairs]), (other, [two for _, two in pairs])):
                reached = [updates_to(run.curve, success) for run in runs]
                an_update = arm.setup.groups * arm.setup.group_size
                counts.append([an_update * updates for updates, _ in reached])
                censored = sum(late for _, late in reached)
                row.append(_spread(counts[-1]) + (f" +{censored}" if censored else ""))
            saved.append(str(statistics.saving(*counts)) if len(pairs) > 1 and any(counts[0]) else "-")
        shown.add_row(*row, "; ".join(saved))
    return shown


def curves(experiments: Sequence[Experiment], done: Runs, directory: Path) -> list[Path]:
    """One PNG an experiment of which two arms have run: median over seeds, and the range of the middle half."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    written: list[Path] = []
    for experiment in experiments:
        lines = [(arm, runs) for arm in experiment.arms if (runs := finished(experiment, arm, done))]
        if len(lines) < 2:
            continue
        figure, axes = pyplot.subplots(figsize=(9, 5))
        colours = pyplot.get_cmap("turbo")(np.linspace(0.05, 0.95, len(lines)))
        for (arm, runs), colour in zip(lines, colours, strict=True):
            updates = [update for update, _ in next(iter(runs.values())).curve]
            values = np.array([[success for _, success in run.curve] for run in runs.values()])  # (runs, points)
            axes.plot(updates, np.median(values, 0), color=colour, label=f"{arm.name} ({len(runs)})")
            axes.fill_between(updates, *np.percentile(values, (25, 75), axis=0), color=colour, alpha=0.15, lw=0)
        axes.set(xlabel="updates", ylabel="held-out success", ylim=(0, 1), title=experiment.question)
        axes.grid(alpha=0.3)
        if len(lines) < 9:
            axes.legend(fontsize=7)
        else:  # beside the curves: it would cover them
            axes.legend(fontsize=6, ncols=(len(lines) + 29) // 30, loc="upper left", bbox_to_anchor=(1.01, 1.02))
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"ablation-{re.sub('[^a-z0-9]+', '-', experiment.name)}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
        pyplot.close(figure)
        written.append(path)
    return written


def _row(experiment: Experiment, arm: Arm, runs: Mapping[int, Done], done: Runs, width: int) -> list[str]:
    ends = [run.curve[-1][1] for run in runs.values()]
    reached = [updates_to(run.curve, TARGET) for run in runs.values()]
    row = [
        f"{len(runs)} of {experiment.seeds}",
        _spread(ends, percent=True),
        _spread([updates for updates, _ in reached]),
        str(sum(censored for _, censored in reached)),
    ]
    first = experiment.arms[0].setup
    if first.rename:
        later = [success for run in runs.values() if (success := statistics.at(run.curve, DRIFT_UPDATE)) is not None]
        back = [updates_to(run.curve, run.ran.before - WITHIN) for run in runs.values() if run.ran.before is not None]
        row.append(_spread(later, percent=True))
        censored = sum(late for _, late in back)
        row.append(_spread([updates for updates, _ in back]) + (f" ({censored} censored)" if censored else ""))
    row.append(str(_saved(experiment, arm, done) or ""))
    if len(first.evaluated) > 1:
        for family in first.evaluated:
            row.append(
                _spread([run.family(family)[-1][1] for run in runs.values() if run.family(family)], percent=True)
            )
    return row[:width]


def _saved(experiment: Experiment, arm: Arm, done: Runs) -> Interval | None:
    """Updates saved against the experiment's first arm; None for that arm itself, or without two pairs."""
    if arm is experiment.arms[0]:
        return None
    pairs = _pairs(experiment, experiment.arms[0].name, arm.name, done)
    if len(pairs) < 2 or all(_to_target(a) == 0 for a, _ in pairs):
        return None
    return statistics.saving(*zip(*[(_to_target(a), _to_target(b)) for a, b in pairs], strict=True))


def _pairs(experiment: Experiment, base: str, other: str, done: Runs) -> list[tuple[Done, Done]]:
    arms = {arm.name: finished(experiment, arm, done) for arm in experiment.arms if arm.name in (base, other)}
    both = [(arms[base][seed], arms[other][seed]) for seed in sorted(arms[base].keys() & arms[other].keys())]
    return [(a, b) for a, b in both if a.base == b.base]


def _to_target(run: Done) -> float:
    return updates_to(run.curve, TARGET)[0]


def _after_drift(run: Done) -> float:
    success = statistics.at(run.curve, DRIFT_UPDATE)
    assert success is not None, f"{run.id} was not measured at update {DRIFT_UPDATE}"
    return success


def _spread(values: Sequence[float], *, percent: bool = False) -> str:
    """Median, lowest and highest."""
    if not values:
        return "-"
    shown = [float(np.median(values)), min(values), max(values)]
    middle, low, high = (f"{100 * value:.0f}" if percent else f"{value:.1f}" for value in shown)
    return f"{middle} ({low}-{high})"
