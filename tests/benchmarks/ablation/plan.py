"""Which runs there are: experiments, their arms, and for each arm the cells, one a seed; and what they start from.

Seeds are paired: seed i has the same warm start, tasks and held-out tasks in every arm. Three warm starts, the shipped
one and two of `tests.warmstart`'s own recipe with other seeds, not chosen by any figure, are kept under build/ablation,
and so is what each becomes when it is trained until it masters the short desk.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from daemon.demo.worlds import WORLDS
from tests.benchmarks.ablation.loop import Curve, Setup, run
from tests.warmstart import courses

ROOT = Path(__file__).parents[3] / "build" / "ablation"
SEEDS, WARM_STARTS = 10, 3
TRAINING = Setup(updates=30, eval_every=5, learner={"lr": 5e-4, "credit": {"alpha": 0.0}})
"""How a warm start becomes the policy that drifts begin from: GRPO on the short desk."""
SLOW = 1e-4
"""The largest of 1e-3, 3e-4 and 1e-4 at which GRPO alone needs ten updates to 80 %, measured on the shipped warm start:
its greedy policy solves the long desk, and at the demo's 1e-3 one to four updates bring that out. Nobody could see a
saving there."""
EXPERIMENTS = {
    "long": (
        "Does step credit save updates on the long desk?",
        Setup(families="L", updates=24, eval_every=2, eval_tasks=96, learner={"lr": SLOW}),
    ),
    "drift": (
        "After a rename, what brings success back?",
        Setup(start="trained", rename={"book": "buy"}, updates=32),
    ),
    "short": (
        "Does step credit save updates on the short desk?",
        Setup(updates=32, eval_every=2, learner={"lr": SLOW}),
    ),
}
"""Questions and what all arms have in common, in the order in which they are worth running."""


class Cell(NamedTuple):
    experiment: str
    arm: str
    seed: int
    setup: Setup

    @property
    def key(self) -> str:
        """What it does, whatever it is called."""
        return msgspec.json.encode([self.setup, self.seed], order="deterministic").decode()

    @property
    def name(self) -> str:
        return f"{self.experiment}/{self.arm}/seed {self.seed}"


def cells(experiment: str) -> Iterator[Cell]:
    """Seed by seed, so that a run that is stopped has whole pairs."""
    _, setup = EXPERIMENTS[experiment]
    grpo = msgspec.structs.replace(setup, learner={**setup.learner, "credit": {"alpha": 0.0}})
    arms = {
        "GRPO": grpo,
        "+credit (answer key)": msgspec.structs.replace(setup, judge="oracle"),
        "+credit (rules)": msgspec.structs.replace(setup, judge="rules"),
        "+lessons": msgspec.structs.replace(grpo, eta=0.5),
        "both (answer key)": msgspec.structs.replace(setup, judge="oracle", eta=0.5),
        "both (rules)": msgspec.structs.replace(setup, judge="rules", eta=0.5),
    }
    for seed in range(SEEDS):
        for arm, own in arms.items():
            yield Cell(experiment, arm, seed, own)


def play(cell: Cell, end: float | None) -> Curve | None:
    """Run one cell; None past `end`, unix seconds."""
    start = warm_start if cell.setup.start == "warm" else trained
    return run(cell.setup, start(cell.seed % WARM_STARTS), cell.seed, name=cell.name, end=end)


def warm_start(seed: int) -> Path:
    return WORLDS["travel"].warm_start if seed == 0 else _there(f"warmstart-{seed}")


def trained(seed: int) -> Path:
    """Directory of the policy that a warm start became."""
    return _there(f"trained-{seed}")


def prepare(seed: int) -> None:
    """Make both, unless that is done."""

    def start(directory: Path) -> None:
        courses.run(directory, seed, lambda line: print(f"warm start {seed}: {line}", flush=True))

    def train(directory: Path) -> None:
        base = warm_start(seed)
        run(TRAINING, base, seed, name=f"trained {seed}", keep=directory)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(base / name, directory / name)

    if seed:
        _make(f"warmstart-{seed}", start)
    _make(f"trained-{seed}", train)


def _there(name: str) -> Path:
    if not (ROOT / name).exists():
        raise FileNotFoundError(f"{ROOT / name} is missing: run with --prepare first")
    return ROOT / name


def _make(name: str, fill: Callable[[Path], object]) -> None:
    if not (ROOT / name).exists():
        aside = ROOT / f".{name}.part"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        fill(aside)
        os.replace(aside, ROOT / name)
