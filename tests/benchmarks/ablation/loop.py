"""One cell: sample, label, credit, batch, update, measure; again and again. An update is the learner's own code."""

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from actors.kinds.clusters import cluster_of
from actors.kinds.kinds import Kinds
from actors.messages import Attributed, Attribution, BatchItem, Label, StepLabel, TokenRow, Trajectory, pack_array
from actors.rollout.harness.rows import hint_span
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.desk import Desk
from adapters.environments.travel.drift import Variant
from adapters.judges.rules import judge
from daemon.demo.world import TOY
from daemon.processes.learner_settings import learner
from daemon.settings import reading, toml
from learner.build import BuildSettings, build
from learner.credit import assign
from learner.settings import LearnerSettings
from learner.trainers.native import NativeTrainer
from tests.benchmarks.ablation.attempts import Attempt
from tests.benchmarks.ablation.player import Player, Tokens
from tests.support.fakes import candidate
from tests.warmstart.travel_demonstrations import hints

TASKS_A_SEED = 1_000_000
Source = Literal["none", "oracle", "rules"]
"""Who labels the steps: nobody, the answer key, or the rules judge that ships."""
Curve = list[tuple[int, float]]
"""(updates, held-out success after them)"""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    start: Literal["warm", "trained"] = "warm"
    """The warm start, or the policy that it became on the undisturbed short desk."""
    families: str = "ABC"
    """Kinds of task that it learns from and is measured on; L is the long desk (14 to 17 steps), A to C the short one
    (4 to 7)."""
    rename: dict[str, str] = {}
    """Tools renamed before the first update."""
    updates: int = 40
    groups: int = 8
    """Tasks an update."""
    group_size: int = 8
    """Attempts a task; 1 is production's single-sample traffic."""
    eta: float = 0.0
    """Share of each group that sees the lessons that fit. They are given, right and complete: what is measured is what
    guided rollouts are worth, not how well lessons are drawn."""
    judge: Source = "none"
    learner: dict[str, Any] = {}
    """`LearnerSettings` that differ from the demo's; `credit` is one of them."""
    eval_every: int = 1
    eval_tasks: int = 128


class Loop:
    """A policy that learns on the desk, from the checkpoint `base` on; `work` holds the present weights."""

    def __init__(self, setup: Setup, base: Path, seed: int, work: Path) -> None:
        self._setup, self._seed, self._work = setup, seed, work
        demo = learner(reading.checked(reading.laid_over(reading.defaults(), TOY, "demo"), "demo"))
        table = toml.merge({**msgspec.to_builtins(demo), "device": "cpu"}, setup.learner)
        self._settings = msgspec.convert(table, LearnerSettings)
        self._trainer, self._player = NativeTrainer(self._settings, base), Player(base)
        self._desk, self._variant = TravelDesk(), Variant.of(Drift(rename=setup.rename))
        self._noise, self._measuring_noise = random.Random(seed), random.Random(f"measuring-{seed}")
        self.kinds = Kinds()
        self._updates = self._version = 0

    def save(self, directory: Path) -> None:
        self._trainer.save(directory)

    def update(self) -> None:
        attempts = list(self._attempts())
        played = zip(attempts, self._player.play(attempts, self._noise), strict=True)
        first = self._updates * len(attempts)
        self._learn([self._item(number, *one) for number, one in enumerate(played, first)])
        self._updates += 1

    def measure(self) -> float:
        """Held-out success of the present weights, sampled at temperature 1, without lessons."""
        first, count = self._seed * self._setup.eval_tasks, self._setup.eval_tasks
        tasks = [self._desk.sample(first + i, "heldout", self._setup.families) for i in range(count)]
        attempts = [Attempt(task, self._variant) for task in tasks]
        self._player.play(attempts, self._measuring_noise)
        return float(np.mean([attempt.solved for attempt in attempts]))

    def _attempts(self) -> Iterator[Attempt]:
        setup = self._setup
        for number in range(setup.groups):
            at = self._seed * TASKS_A_SEED + self._updates * setup.groups + number
            task = self._desk.sample(at, "train", setup.families)
            group = f"{self._updates}-{number}" if setup.group_size > 1 else ""
            tickets = Desk(task.spec["seed"], task.spec["family"], self._variant).tickets
            lines = hints("".join(ticket.kind for ticket in tickets), self._variant)
            for member in range(setup.group_size):
                if member < round(setup.eta * setup.group_size):
                    lessons = "".join("\n" + line for line in lines)
                    yield Attempt(task, self._variant, lessons, ("given",), group)
                else:
                    yield Attempt(task, self._variant, group=group)

    def _item(self, number: int, attempt: Attempt, tokens: Tokens) -> BatchItem:
        """An attempt with its credit, as the attributor publishes it."""
        plain, opening = self._player.encode(attempt.plain), self._player.encode(attempt.opening)
        row = TokenRow(
            ids=pack_array(tokens.ids, "<i4"),
            step=pack_array(tokens.steps, "<i2"),
            logprobs=pack_array(tokens.logprobs, "<f4"),
            versions=pack_array([self._version if step >= 0 else -1 for step in tokens.steps], "<i4"),
            hint=hint_span(plain, opening) if opening != plain else (0, 0),
        )
        run = attempt.trajectory(number, self._version, row)
        labels = tuple(self._labels(run, attempt.truth))
        attribution = Attribution(labels=labels, judge=self._setup.judge, rubric="")
        credited = Attributed(id=run.id, trajectory=run, attribution=attribution, cluster=cluster_of(run.goal))
        return BatchItem(attributed=credited)

    def _labels(self, run: Trajectory, truth: Sequence[Label]) -> Sequence[StepLabel]:
        """One label a step; only `oracle` looks at `truth`, what the answer key says."""
        if self._setup.judge == "rules":
            return judge(run)
        return [StepLabel(one if self._setup.judge == "oracle" else "ABSTAIN") for one in truth]

    def _learn(self, fresh: Sequence[BatchItem]) -> None:
        items = self._expecting(fresh)
        limits = BuildSettings(
            vocabulary=self._trainer.vocabulary,
            max_tokens=self._trainer.max_tokens,
            chain=tuple(range(self._version + 1)),
            newest=self._version,
            max_staleness=self._settings.max_staleness,
        )
        built = build(items, assign(items, self._settings.credit), limits)
        if built.batch is None:
            return
        seed = int(np.random.SeedSequence([self._seed, self._updates]).generate_state(1)[0])
        report = self._trainer.update(built.batch, seed=seed)
        self._version += 1
        moved = msgspec.structs.replace(candidate(self._version, self._work), metrics=report.metrics)
        self.kinds.estimates.trained(moved)
        self._trainer.save(self._work)
        self._player.load(self._work)

    def _expecting(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        """Runs without a group with what was to be expected of them, as the curator sends them."""
        if self._setup.group_size > 1:
            return fresh
        runs = [item.attributed.trajectory for item in fresh]
        for run in runs:
            self.kinds.tell(run)
        return [
            msgspec.structs.replace(item, estimate=self.kinds.estimate(run), kind=self.kinds.names(run))
            for item, run in zip(fresh, runs, strict=True)
        ]


def run(
    setup: Setup, base: Path, seed: int, *, name: str, end: float | None = None, keep: Path | None = None
) -> Curve | None:
    """Run one cell to its end, and say how it goes; None if it was past `end`, unix seconds, before that.

    Args:
        keep: existing directory that the final weights are written to.
    """
    began = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        loop = Loop(setup, base, seed, Path(work))
        curve = [(0, loop.measure())]
        for number in range(1, setup.updates + 1):
            if end is not None and time.time() > end:
                return None
            loop.update()
            if number % setup.eval_every == 0 or number == setup.updates:
                curve.append((number, loop.measure()))
                print(f"{name}  {number}/{setup.updates}  held out {curve[-1][1]:.2f}  "
                      f"{time.process_time() - began:.0f} CPU-s", flush=True)  # fmt: skip
        if keep is not None:
            loop.save(keep)
    return curve
