"""What single runs teach: labels of a judge that tosses a coin, steps of a small batch, samples that are old.

    python -m tests.benchmarks.singles --part labels|steps|stale [--seeds 4] [--json FILE]

Live traffic in free words as in `tests.benchmarks.kinds`: eight runs an update, each with its outcome, every version
serves at once, the shipped warm start. Success is of 96 held-out tasks, sampled at temperature 1.

* `labels`: 36 updates on outcomes alone, then 30 at twice the rate with labels half of which are turned round.
* `steps`: 30 updates of 1, 2 and 4 optimizer steps, at three rates.
* `stale`: 40 updates on what was sampled 4 and 8 updates before, with and without what leaves such samples out.
"""

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from learner.errors import BatchRefused
from tests.benchmarks import report
from tests.benchmarks.ablation import bases
from tests.benchmarks.ablation.plan import Setup
from tests.benchmarks.kinds import LABELS, RUNS, LiveLoop

RATE = 2e-4
STEPS = (1, 2, 4)
RATES = (2e-4, 4e-4, 8e-4)
LAGS = (4, 8)
OLD: dict[str, dict[str, Any]] = {
    "recorded, the default": {},
    "rows within 0.9 to 1.1": {"sequence_limit": 0.1},
}


class SinglesLoop(LiveLoop):
    """Live traffic whose judge and learning rate may change on the way."""

    def change(self, *, judge: str, wrong: float, lr: float) -> None:
        """From now on labels of `judge`, `wrong` of them turned round, at the rate `lr`."""
        credit = msgspec.structs.replace(self._settings.credit, **LABELS[judge])
        self._setup = msgspec.structs.replace(self._setup, judge=judge, wrong=wrong)
        self._settings = msgspec.structs.replace(self._settings, credit=credit, lr=lr)
        self._trainer._settings = self._settings
        for group in self._trainer._optimizer.param_groups:
            group["lr"] = lr

    def run(self, updates: int, look: int) -> list[float]:
        """Success after every `look` of so many updates."""
        seen: list[float] = []
        for number in range(1, updates + 1):
            try:
                self.update()
            except BatchRefused:
                # The order is skipped, and the next is played with the weights that there are.
                self._past.append((self._version, self._now))
                self._updates += 1
                self.counts["refused"] += 1
            if number % look == 0:
                seen.append(self.measure().success)
        return seen


class Ran(msgspec.Struct, frozen=True):
    """One run of one arm."""

    arm: str
    seed: int
    looks: list[float]
    counts: dict[str, int]


def labels(loop: SinglesLoop) -> list[float]:
    """See the module."""
    loop.run(36, 37)
    loop.change(judge="oracle", wrong=0.5, lr=2 * RATE)
    return loop.run(30, 6)


def arms(part: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Name, settings of the learner and lag of each."""
    if part == "labels":
        yield "coin", {"lr": RATE, "mini_batches": 4}, 0
    elif part == "steps":
        for lr in RATES:
            for steps in STEPS:
                yield f"{steps} at {lr:g}", {"lr": lr, "mini_batches": steps}, 0
    else:
        for lag in LAGS:
            for name, settings in OLD.items():
                limits = {"max_staleness": max(LAGS)}
                yield f"{name}, lag {lag}", {"lr": 2 * RATE, "mini_batches": 4, **limits, **settings}, lag


def cell(part: str, name: str, learner: dict[str, Any], lag: int, seed: int) -> Ran:
    """One run of the benchmark."""
    torch.set_num_threads(1)
    base = bases.require(bases.warm_start(0))
    setup = Setup(
        groups=RUNS, group_size=1, eval_tasks=96, lag=lag, learner={"credit": LABELS["none"], **learner}
    )  # fmt: skip
    plays = {"labels": labels, "steps": partial(SinglesLoop.run, updates=30, look=3),
             "stale": partial(SinglesLoop.run, updates=40, look=5)}  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        loop = SinglesLoop("free", setup, base, seed, Path(work))
        ran = Ran(name, seed, [round(look, 3) for look in plays[part](loop)], dict(loop.counts))
    print(msgspec.json.encode(ran).decode(), flush=True)
    return ran


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments("What single runs teach.")
    parser.add_argument("--part", choices=("labels", "steps", "stale"), required=True, help="what is asked")
    parser.add_argument("--seeds", type=int, default=4, help="runs of each arm (4)")
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first (0)")
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = [cell(options.part, *arm, seed) for seed in seeds for arm in arms(options.part)]
    names = list(dict.fromkeys(ran.arm for ran in found))
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    for name in names:
        own = [ran.looks for ran in found if ran.arm == name]
        late = [statistics.fmean(looks[len(looks) // 2 :]) for looks in own]
        figures[f"late {name}"] = statistics.fmean(late)
        lowest = [min(looks[len(looks) // 2 :]) for looks in own]
        rows.append((name, " ".join(f"{100 * value:.0f}" for value in late),
                     " ".join(f"{100 * value:.0f}" for value in lowest)))  # fmt: skip
    report.table("success in the second half, %", ("arm", "mean, by seed", "lowest, by seed"), rows)
    report.write(options.json, f"singles {options.part}", figures, list(seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
