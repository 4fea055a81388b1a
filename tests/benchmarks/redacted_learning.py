"""Runs of live traffic to 80 % where half of them were redacted, beside none: real tiny learner, travel desk.

    python -m tests.benchmarks.redacted_learning [--seeds 3] [--lr 5e-4] [--json FILE]

As `tests.benchmarks.kinds`, with goals in the desk's own words. In `half` every second run has lost its customer, in
the prompt and in the arguments that the model wrote: the ids of the placeholder stand there, nothing is trained on
them, and the row is marked as redacted, as the assembler does it. The model sampled with the name, and is measured with
names. In `left out` the same runs are not trained on, as if they could not be. All eight runs of an update count.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from tokenizers import Tokenizer

from actors.messages import BatchItem, TokenRow, floats_array, ids_array, pack_array, steps_array
from tests.benchmarks import report
from tests.benchmarks.ablation import bases
from tests.benchmarks.ablation.plan import Setup
from tests.benchmarks.kinds import RUNS, WANTED, LiveLoop

ARMS = ("none", "half", "left out")
_STAND_IN = "[REDACTED:person]"


class RedactedLoop(LiveLoop):
    """Live traffic of which every second run names nobody any more."""

    def __init__(self, arm: str, setup: Setup, base: Path, seed: int, work: Path) -> None:
        super().__init__("desk", setup, base, seed, work)
        self._how = arm
        self._tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        self._stand_in: list[int] = self._tokenizer.encode(_STAND_IN).ids
        self.masked, self.sampled = 0, 0

    def _expecting(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        items = super()._expecting(fresh)
        if self._how == "none":
            return items
        if self._how == "left out":
            return items[::2]
        return [self._redacted(item) if number % 2 else item for number, item in enumerate(items)]

    def _redacted(self, item: BatchItem) -> BatchItem:
        run = item.attributed.trajectory
        name = run.goal.rpartition("for:")[2].split()[0].rstrip(".")
        rows = tuple(self._without(row, name) for row in run.rows)
        run = msgspec.structs.replace(run, rows=rows)
        return msgspec.structs.replace(item, attributed=msgspec.structs.replace(item.attributed, trajectory=run))

    def _without(self, row: TokenRow, name: str) -> TokenRow:
        """`row` with the placeholder for each token that is `name`; here a name is one token."""
        ids, steps = ids_array(row.ids).tolist(), steps_array(row.step).tolist()
        logprobs, versions = floats_array(row.logprobs).tolist(), ids_array(row.versions).tolist()
        columns: list[tuple[int, int, float, int]] = []
        masked = 0
        for column in zip(ids, steps, logprobs, versions, strict=True):
            if self._tokenizer.decode([column[0]]).strip() == name:
                columns += [(one, -1, 0.0, -1) for one in self._stand_in]
                masked += column[1] >= 0
            else:
                columns.append(column)
        if len(columns) == len(ids):
            raise ValueError(f"nothing of {name!r} in a row")
        self.masked += masked
        self.sampled += sum(step >= 0 for step in steps)
        return msgspec.structs.replace(
            row, ids=pack_array([one[0] for one in columns], "<i4"),
            step=pack_array([one[1] for one in columns], "<i2"),
            logprobs=pack_array([one[2] for one in columns], "<f4"),
            versions=pack_array([one[3] for one in columns], "<i4"), redacted=True, masked=masked,
        )  # fmt: skip


class Ran(msgspec.Struct, frozen=True):
    """One arm with one seed."""

    runs: int
    """Until held-out success was 80 %; the limit if it never was."""
    reached: bool
    masked: float
    """Share of redacted runs' sampled tokens."""
    seconds: float
    """CPU time."""


def cell(arm: str, setup: Setup, seed: int) -> Ran:
    """One run of the benchmark."""
    torch.set_num_threads(1)
    began, reached = time.process_time(), 0
    with tempfile.TemporaryDirectory() as work:
        loop = RedactedLoop(arm, setup, bases.require(bases.warm_start(0)), seed, Path(work))
        for number in range(1, setup.updates + 1):
            loop.update()
            if number % setup.eval_every == 0 and loop.measure().success >= WANTED:
                reached = number
                break
    share = loop.masked / loop.sampled if loop.sampled else 0.0
    found = Ran((reached or setup.updates) * RUNS, bool(reached), share, time.process_time() - began)
    print(f"{arm}, seed {seed}: {found}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments("Runs of live traffic to 80 %, half of them redacted against none.")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each arm (3)")
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--updates", type=int, default=80, help="of each run at most (80)")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="which arms (all)")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate of all arms (5e-4)")
    options = parser.parse_args(arguments)
    setup = Setup(
        groups=RUNS, group_size=1, updates=options.updates, eval_every=2,
        learner={"lr": options.lr, "credit": {"alpha": 0.0}},
    )  # fmt: skip
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    # Seed by seed, so that what was measured when somebody stops it compares the same seeds.
    cells = {(arm, seed): cell(arm, setup, seed) for seed in seeds for arm in options.arms}
    found = {arm: [cells[arm, seed] for seed in seeds] for arm in options.arms}
    medians = {arm: statistics.median(ran.runs for ran in own) for arm, own in found.items()}
    rows = [
        (arm, f"{medians[arm]:.0f}", " ".join(str(ran.runs) if ran.reached else f">{ran.runs}" for ran in own),
         f"{statistics.fmean(ran.masked for ran in own):.1%}")
        for arm, own in found.items()
    ]  # fmt: skip
    report.table("runs to 80 %", ("redacted", "median runs", "by seed", "sampled tokens masked"), rows)
    figures = {f"runs_to_80_{arm.replace(' ', '_')}": float(runs) for arm, runs in medians.items()}
    report.write(options.json, "redacted_learning", figures, list(seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
