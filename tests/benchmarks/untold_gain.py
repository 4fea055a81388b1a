"""What outcomes that nobody reported do to a policy: the service desk's live traffic, real tiny learner.

    python -m tests.benchmarks.untold_gain [--seeds 3] [--runs 3200] [--arms 100 5 1 ...] [--json FILE]

Every run comes once, ten a minute, from one of ten keys, without labels; a gate that always says yes lets each version
serve at once. An arm reports a share of its runs a minute after their end, failures twice as often as successes, and
differs from the others in nothing else: 100, 5, 1 and 0 are per cent with provisional outcomes, `5_alone` and `1_alone`
without, `5_liars` has 30 % of the customers behave as if it had gone the other way, `5_forger` an agent whose framework
thanks itself in the name of every customer. Training customers speak in training phrases. Success is of held-out tasks,
sampled at temperature 1; the gain is the mean of the last two looks less the first.

Sixteen runs whose outcome is known or guessed make an update. What is older than the learner takes is dropped, so a run
whose customer says nothing, which waits an hour for them, trains where a version serves for that long, and not here.
"""

import random
import statistics
import sys
import tempfile
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from actors.kinds.kinds import Kinds
from actors.messages import BatchItem, Candidate, Trajectory
from actors.provisional.outcome_model import learn
from actors.provisional.waiting import Provisional
from daemon.demo.worlds import WORLDS
from tests.benchmarks import report
from tests.benchmarks.drift_world import Attempt, Policy, attributed
from tests.benchmarks.untold import PARTIES, SECONDS, followed

BATCH = 16
TASKS_A_SEED = 1_000_000
REPORTED_AFTER = 60.0
"""Seconds."""
FORGER = "R"
"""The agent that thanks itself."""


class Arm(msgspec.Struct, frozen=True):
    """What is reported, and whether the rest is guessed."""

    share: float
    guesses: bool = True
    lies: float = 0.0
    forger: str = ""


ARMS = {
    "100": Arm(1.0, False), "5": Arm(0.05), "5_alone": Arm(0.05, False), "1": Arm(0.01), "1_alone": Arm(0.01, False),
    "0": Arm(0.0), "5_liars": Arm(0.05, lies=0.3), "5_forger": Arm(0.05, forger=FORGER),
}  # fmt: skip


class Ran(msgspec.Struct, frozen=True):
    """One arm with one seed."""

    arm: str
    seed: int
    looks: list[float]
    """Held-out success at the start and after each part of the runs."""
    updates: int
    counts: dict[str, int]
    """Items trained on that were `reported` and `guessed`, guesses on the `wrong` side of what was to be expected, what
    got too `old`, reports."""
    weight: float
    """Of the outcome model in the end."""
    seconds: float
    """CPU."""

    @property
    def gain(self) -> float:
        """Points."""
        return 100.0 * (statistics.fmean(self.looks[-2:]) - self.looks[0])


class Live:
    """A policy, its customers, and what is known of their runs."""

    def __init__(self, arm: Arm, seed: int, lr: float, work: Path) -> None:
        self._arm, self._seed = arm, seed
        self._place = WORLDS["service"]
        self._desk = self._place.environment(None)
        self._rng = random.Random(f"untold-gain-{seed}")
        self.policy = Policy("service", self._place.warm_start, seed, work, lr=lr)
        self.kinds, self.known = Kinds(), Provisional()
        self._reports: deque[tuple[float, str]] = deque()
        self._truth: dict[str, float] = {}
        self._runs: OrderedDict[str, Trajectory] = OrderedDict()
        """That were not trained on and are not too old."""
        self._waiting: OrderedDict[str, BatchItem] = OrderedDict()
        """Reported."""
        self._guessed: OrderedDict[str, BatchItem] = OrderedDict()
        self._number = 0
        self.counts: Counter[str] = Counter()

    def traffic(self, runs: int) -> None:
        """Let so many customers come, and learn of what is known by then."""
        tasks = [
            self._desk.sample(TASKS_A_SEED * self._seed + self._number + place, "train", self._place.families)
            for place in range(runs)
        ]
        attempts = [Attempt(self._desk, task, self._place.max_steps) for task in tasks]
        rows = self.policy.play(attempts)
        for attempt, row in zip(attempts, rows, strict=True):
            self._number += 1
            start = self._number * SECONDS
            run = attempt.trajectory(f"r{self._number}", row, self.policy.player, self.policy.version, start)
            letter = str(attempt.task.spec["family"])
            run = msgspec.structs.replace(
                run, source="production", outcome=None, task_id="", caller=f"key-{self._number % PARTIES}",
                ended=start + len(run.steps),
                steps=tuple(msgspec.structs.replace(step, role=f"{letter}#00000000") for step in run.steps),
            )  # fmt: skip
            told = followed(
                self._rng, "train", attempt.desk, run, lies=self._arm.lies, forges=letter == self._arm.forger
            )
            for one in told:
                self.known.saw(one)
            self._runs[run.id] = told[0]
            self._truth[run.id] = float(attempt.solved)
            if self._rng.random() < self._arm.share * (
                1.0 if self._arm.share == 1.0 else 4 / 3 - 2 / 3 * attempt.solved
            ):
                self._reports.append((run.ended + REPORTED_AFTER, run.id))
            self._settle(start)

    def _settle(self, now: float) -> None:
        """Take in what is reported by `now`, and guess the rest."""
        while self._reports and self._reports[0][0] <= now:
            self._reported(self._reports.popleft()[1])
        wanted = self.known.model.to_learn()
        if wanted is not None:
            self.known.model.adopt(learn(*wanted))
        if self._arm.guesses:
            for chance in self.known.due(now, BATCH):
                self._guess(chance.id, chance.chance, chance.weight)

    def _reported(self, key: str) -> None:
        run = self._runs.get(key)
        self.counts["reports"] += 1
        if run is None:  # trained on as a guess, or too old: it teaches kinds and model all the same
            return
        run = msgspec.structs.replace(run, outcome=self._truth[key])
        self.kinds.tell(run)
        self.known.told(run)
        self._guessed.pop(key, None)
        self._waiting[key] = self._item(run)

    def _guess(self, key: str, chance: float, weight: float) -> None:
        run = self._runs.get(key)
        estimate = self.kinds.estimate(run) if run is not None else None
        if run is None or estimate is None:
            return
        self.counts["wrong"] += (chance > estimate.mean) != bool(self._truth[key])
        self.counts["guesses"] += 1
        outcome = estimate.mean + weight * (chance - estimate.mean)
        self._guessed[key] = self._item(msgspec.structs.replace(run, outcome=outcome, provisional=True))

    def _item(self, run: Trajectory) -> BatchItem:
        return BatchItem(attributed=attributed(run), estimate=self.kinds.estimate(run), kind=self.kinds.names(run))

    def update(self) -> bool:
        """One update, if there is enough for it."""
        oldest = self.policy.version - self.policy.max_staleness
        for pool in (self._waiting, self._guessed):
            for key, item in list(pool.items()):
                if item.attributed.trajectory.min_version < oldest:
                    del pool[key]
                    self.counts["old"] += 1
        if len(self._waiting) + len(self._guessed) < BATCH:
            return False
        items: list[BatchItem] = []
        for name, pool in (("reported", self._waiting), ("guessed", self._guessed)):
            while pool and len(items) < BATCH:
                key, item = pool.popitem()
                self._runs.pop(key, None)
                items.append(item)
                self.counts[name] += 1
        before = self.policy.version
        metrics = self.policy.learn(items)
        self.kinds.estimates.trained(
            Candidate(
                id=f"v{self.policy.version}", version=self.policy.version, parent=before, path="", files=(),
                manifest="", metrics=metrics,
            )
        )  # fmt: skip
        return True

    def success(self, tasks: int) -> float:
        """Of held-out tasks."""
        first = TASKS_A_SEED * (self._seed + 1)
        attempts = [
            Attempt(
                self._desk, self._desk.sample(first + place, "heldout", self._place.families), self._place.max_steps
            )
            for place in range(tasks)
        ]
        self.policy.play(attempts)
        return statistics.fmean(attempt.solved for attempt in attempts)


def ran(name: str, seed: int, lr: float, runs: int, tasks: int, looks: int) -> Ran:
    """One run of the benchmark."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        live = Live(ARMS[name], seed, lr, Path(work))
        seen = [live.success(tasks)]
        for place in range(0, runs, BATCH):
            live.traffic(min(BATCH, runs - place))
            live.update()
            if (place + BATCH) * looks // runs > place * looks // runs:
                seen.append(live.success(tasks))
        serving = live.known.model.serving
        found = Ran(
            name, seed, seen, live.policy.updates, dict(live.counts), serving.skill.weight if serving else 0.0,
            time.process_time() - began,
        )  # fmt: skip
    print(
        f"{name}, seed {seed}: {100 * seen[0]:.0f} -> {' '.join(f'{100 * one:.0f}' for one in seen[1:])}; {found}",
        flush=True,
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments((__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="policies of each arm (3)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--runs", type=int, default=3200, help="customers of each (3200)")
    parser.add_argument("--tasks", type=int, default=192, help="held-out tasks a look (192)")
    parser.add_argument("--looks", type=int, default=8, help="after the first (8)")
    parser.add_argument("--lr", type=float, default=5e-5, help="learning rate of all arms (5e-5)")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="which (all)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    seeds = range(options.first, options.first + options.seeds)
    found = [
        ran(arm, seed, options.lr, options.runs, options.tasks, options.looks) for seed in seeds for arm in options.arms
    ]
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    for arm in options.arms:
        own = [one for one in found if one.arm == arm]
        figures[f"gain_{arm}"] = statistics.fmean(one.gain for one in own)
        rows.append(
            (arm, f"{figures[f'gain_{arm}']:+.1f}", " ".join(f"{one.gain:+.0f}" for one in own),
             " ".join(str(one.updates) for one in own), " ".join(f"{one.weight:.2f}" for one in own))
        )  # fmt: skip
    report.table("gain in points", ("reported, %", "mean", "by seed", "updates", "model's weight"), rows)
    if "gain_5_liars" in figures:
        figures["liars_30_change"] = figures["gain_5_liars"]
    report.write(options.json, "untold_gain", figures, list(seeds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
