"""One cell: sample, label, credit, batch, update, measure; again and again. An update is the learner's own code."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from tokenizers import Tokenizer

from actors.kinds.kinds import Kinds
from actors.messages import BatchItem, Candidate, Task
from adapters.environments.travel import Drift, TravelDesk
from adapters.environments.travel.drift import Variant
from daemon.demo.world import TOY
from daemon.settings import reading, toml
from daemon.settings.parts import parts_of
from learner.build import BuildSettings, build
from learner.credit import assign
from learner.settings import LearnerSettings
from learner.trainers.native import NativeTrainer
from tests.benchmarks.ablation.attempts import Attempt, attributed, label
from tests.benchmarks.ablation.plan import Setup
from tests.benchmarks.ablation.player import Player, Shape, Weights

TASKS_A_SEED = 1_000_000


class Point(msgspec.Struct, frozen=True):
    """Held-out success after so many updates."""

    update: int
    success: float


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    points: list[Point]
    seconds: float
    """Of the CPU."""


class Stopped(Exception):
    """The time is up; the cell is given up, to be run again."""


def settings_of(setup: Setup) -> LearnerSettings:
    demo = parts_of(reading.checked(reading.laid_over(reading.defaults(), TOY, "demo"), "demo")).learner
    return msgspec.convert(toml.merge({**msgspec.to_builtins(demo), "device": "cpu"}, setup.learner), LearnerSettings)


class Loop:
    """A policy that learns on the desk, from the checkpoint `base` on; `work` holds the present weights."""

    def __init__(self, setup: Setup, base: Path, seed: int, work: Path) -> None:
        self._setup, self._seed, self._work = setup, seed, work
        self._settings = settings_of(setup)
        self._trainer = NativeTrainer(self._settings, base)
        self._shape = msgspec.json.decode((base / "config.json").read_bytes(), type=Shape)
        self._now = Weights(base, self._shape)
        self._player = Player(self._now, Tokenizer.from_file(str(base / "tokenizer.json")))
        self._desk, self._variant = TravelDesk(), Variant.of(Drift(rename=setup.rename))
        self._noise = torch.Generator().manual_seed(seed)
        self._measuring_noise = torch.Generator().manual_seed(seed + 1_000_003)
        self.kinds = Kinds()
        self._updates = self._version = 0

    def save(self, directory: Path) -> None:
        self._trainer.save(directory)

    def update(self) -> None:
        self._player.weights = self._now
        attempts = self._attempts()
        tokens = self._player.play(attempts, self._noise)
        items: list[BatchItem] = []
        source = self._setup.judge
        for number, (attempt, row) in enumerate(zip(attempts, tokens, strict=True)):
            run = attempt.trajectory(self._updates * len(attempts) + number, row, self._player, self._version)
            items.append(BatchItem(attributed=attributed(run, label(source, run, attempt.truth), source)))
        self._learn(items)
        self._updates += 1

    def measure(self) -> Point:
        """Held-out success of the present weights, sampled at temperature 1, without lessons."""
        setup = self._setup
        self._player.weights = self._now
        first = self._seed * setup.eval_tasks
        attempts = [
            Attempt(self._desk.sample(first + i, "heldout", setup.evaluated), self._variant)
            for i in range(setup.eval_tasks)
        ]
        self._player.play(attempts, self._measuring_noise)
        return Point(self._updates, float(np.mean([attempt.solved for attempt in attempts])))

    def _attempts(self) -> list[Attempt]:
        setup = self._setup
        guided = round(setup.eta * setup.group_size)
        return [
            Attempt(
                task,
                self._variant,
                guided=member < guided,
                group=f"{self._updates}-{number}" if setup.group_size > 1 else "",
            )
            for number, task in enumerate(self._tasks())
            for member in range(setup.group_size)
        ]

    def _tasks(self) -> Iterator[Task]:
        setup = self._setup
        for number in range(setup.groups):
            at = self._seed * TASKS_A_SEED + self._updates * setup.groups + number
            yield self._desk.sample(at, "train", setup.families)

    def _learn(self, fresh: Sequence[BatchItem]) -> None:
        items = self._expecting(fresh)
        credits = assign(items, self._settings.credit)
        built = build(items, credits, self._limits())
        if built.batch is None:
            return
        seed = int(np.random.SeedSequence([self._seed, self._updates]).generate_state(1)[0])
        report = self._trainer.update(built.batch, seed=seed)
        self._version += 1
        self.kinds.estimates.trained(
            Candidate(
                id=f"v{self._version}", version=self._version, parent=self._version - 1, path="", files=(), manifest="",
                metrics=report.metrics,
            )
        )  # fmt: skip
        self._trainer.save(self._work)
        self._now = Weights(self._work, self._shape)

    def _expecting(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        """Runs without a group with what was to be expected of them, as the curator sends them."""
        if self._setup.group_size > 1:
            return fresh
        for item in fresh:
            self.kinds.tell(item.attributed.trajectory)
        return [
            msgspec.structs.replace(
                item,
                estimate=self.kinds.estimate(item.attributed.trajectory),
                kind=self.kinds.names(item.attributed.trajectory),
            )
            for item in fresh
        ]

    def _limits(self) -> BuildSettings:
        return BuildSettings(
            vocabulary=self._trainer.vocabulary,
            max_tokens=self._trainer.max_tokens,
            chain=tuple(range(self._version + 1)),
            newest=self._version,
            max_staleness=self._settings.max_staleness,
        )


def run(
    setup: Setup, base: Path, seed: int, *, name: str, end: float | None = None, keep: Path | None = None
) -> Ran:  # fmt: skip
    """Run one cell to its end, and say how it goes; `Stopped` if it is past `end`, unix seconds, before that.

    Args:
        keep: existing directory that the final weights are written to.
    """
    torch.set_num_threads(1)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        loop = Loop(setup, base, seed, Path(work))
        points = [loop.measure()]
        for number in range(1, setup.updates + 1):
            if end is not None and time.time() > end:
                raise Stopped
            loop.update()
            if number % setup.eval_every == 0 or number == setup.updates:
                points.append(loop.measure())
                print(f"{name}  {number}/{setup.updates}  held out {points[-1].success:.2f}  "
                      f"{time.process_time() - began:.0f} CPU-s", flush=True)  # fmt: skip
        if keep is not None:
            loop.save(keep)
    return Ran(points=points, seconds=round(time.process_time() - began, 1))
