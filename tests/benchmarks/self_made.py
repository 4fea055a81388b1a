"""Learning on self-made tasks alone against the environment's own tasks, at equal updates, measured on held-out ones.

    python -m tests.benchmarks.self_made --seeds 5 --updates 24 [--tasks 320] [--json FILE]

Both arms are the ablation's loop with the same warm start, settings and held-out tasks; all that differs is where the
training tasks come from. The self-made ones are generated here, without a language model, in the worlds of training
tasks that neither arm plays; an attempt at one is good if it reaches the state that its reference reaches. AgentEvolver
finds the two about equal (arXiv 2511.10395). A cell takes one to two CPU minutes.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import anyio
import msgspec
import torch

from actors.messages import Task, Trajectory
from actors.ports.reference_calls import SyntheticTaskSpec, replay
from actors.tasks.questioner.diversity import diversity
from actors.tasks.questioner.generating import Generator
from actors.tasks.questioner.settings import Preferences, QuestionerSettings
from actors.tasks.questioner.state import QuestionerState
from adapters.embedders.hashing import HashingEmbedder
from adapters.environments.travel import TravelDesk
from adapters.environments.travel.drift import Variant
from tests.benchmarks import report
from tests.benchmarks.ablation import bases
from tests.benchmarks.ablation.attempts import Attempt
from tests.benchmarks.ablation.loop import Loop, Point
from tests.benchmarks.ablation.plan import Setup
from tests.benchmarks.ablation.player import Player, Tokens
from tests.benchmarks.ablation.statistics import gain
from tests.warmstart import chat

ARMS = ("original", "self-made")


class SelfMadeAttempt(Attempt):
    """Plays one self-made task; solved is who reaches the state of the reference.

    Args:
        reached: state that the reference reaches.
    """

    def __init__(self, task: Task, reached: dict[str, object], variant: Variant, *, group: str) -> None:
        spec = SyntheticTaskSpec.of(task)
        assert spec is not None
        super().__init__(spec.base_task, variant, group=group)
        self.task, self._reached = task, reached
        self.plain = self.opening = chat.opening(task.goal, variant.tools())

    @property
    def solved(self) -> bool:
        return self._desk.done and self._desk.state() == self._reached

    def trajectory(self, number: int, tokens: Tokens, player: Player, version: int) -> Trajectory:
        return msgspec.structs.replace(super().trajectory(number, tokens, player, version), goal=self.task.goal)


class SelfMadeLoop(Loop):
    """The ablation's loop on a set of tasks instead of the desk's own.

    Args:
        pool: self-made tasks, drawn without repetition until all have been played.
    """

    def __init__(self, setup: Setup, base: Path, seed: int, work: Path, pool: Sequence[Task]) -> None:
        super().__init__(setup, base, seed, work)
        self._pool = list(pool)
        Random(f"pool-{seed}").shuffle(self._pool)
        self._reached = {task.id: reached(task) for task in self._pool}
        self.played = 0

    def _attempts(self) -> list[Attempt]:
        setup, found = self._setup, list[Attempt]()
        for number in range(setup.groups):
            task = self._pool[self.played % len(self._pool)]
            self.played += 1
            found += [
                SelfMadeAttempt(task, self._reached[task.id], self._variant, group=f"{self._updates}-{number}")
                for _ in range(setup.group_size)
            ]
        return found


def reached(task: Task) -> dict[str, object]:
    """The state that the reference of `task` reaches, by executing it."""
    spec = SyntheticTaskSpec.of(task)
    assert spec is not None
    found = anyio.run(replay, TravelDesk(), spec)
    assert not found.problem, found.problem
    return found.state


def generated(seed: int, count: int) -> QuestionerState:
    """Tasks for the short desk in the environment's own words: the demo's tiny vocabulary has few others."""
    settings = QuestionerSettings(families="ABC", prefer=Preferences(wording="learned"))
    generator = Generator(settings, TravelDesk(), clock=time.monotonic, seed=seed, embedder=HashingEmbedder())

    async def run() -> QuestionerState:
        return await generator.run(count, lambda state: None)

    return anyio.run(run)


def cell(arm: str, setup: Setup, seed: int, pool: Sequence[Task]) -> list[Point]:
    """Held-out success of one run, before the first update and as often as the setup says."""
    torch.set_num_threads(1)
    base = bases.require(bases.warm_start(0))
    with tempfile.TemporaryDirectory() as work:
        loop = (
            SelfMadeLoop(setup, base, seed, Path(work), pool)
            if arm == "self-made"
            else Loop(setup, base, seed, Path(work))
        )
        points = [loop.measure()]
        for number in range(1, setup.updates + 1):
            loop.update()
            if number % setup.eval_every == 0 or number == setup.updates:
                points.append(loop.measure())
                print(f"{arm}, seed {seed}: {number}/{setup.updates}, training {loop.training:.2f}, held out "
                      f"{points[-1].success:.3f}, {time.process_time():.0f} CPU-s", flush=True)  # fmt: skip
        return points


def area(points: Sequence[Point]) -> float:
    """Mean held-out success over all measurements after the start: how fast it came, too."""
    return statistics.fmean(point.success for point in points[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = report.arguments("Learning on self-made tasks alone against the environment's own, at equal updates.")
    parser.add_argument("--seeds", type=int, default=5, help="pairs of runs (5)")
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first pair (0)")
    parser.add_argument("--updates", type=int, default=24, help="of each run (24)")
    parser.add_argument("--tasks", type=int, default=320, help="self-made tasks, generated anew for each seed (320)")
    parser.add_argument("--eval-tasks", type=int, default=128, help="held-out tasks in a measurement (128)")
    parser.add_argument("--eval-every", type=int, default=4, help="updates between two measurements (4)")
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate of both arms (3e-4)")
    options = parser.parse_args(arguments)
    setup = Setup(
        updates=options.updates, eval_every=options.eval_every, eval_tasks=options.eval_tasks,
        learner={"lr": options.lr, "credit": {"alpha": 0.0}},
    )  # fmt: skip
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    curves: dict[str, list[list[Point]]] = {arm: [] for arm in ARMS}
    for seed in seeds:
        state = generated(seed, options.tasks)
        figures = diversity(state.tasks)
        print(f"seed {seed}: {state.counts['proposed']} proposed, {len(state.tasks)} kept ({state.ended}), "
              f"dropped {state.reasons}, replayed {state.counts['replayed']}/{state.counts['replays']}, "
              f"{figures.clusters} clusters, {figures.worlds} worlds", flush=True)  # fmt: skip
        for arm in ARMS:
            curves[arm].append(cell(arm, setup, seed, state.tasks))
    show(curves, list(seeds), options)
    return 0


def show(curves: dict[str, list[list[Point]]], seeds: list[int], options: argparse.Namespace) -> None:
    """The curves, and the paired differences."""
    updates = [point.update for point in curves["original"][0]]
    rows = [
        (arm, *(f"{100 * statistics.fmean(run[at].success for run in runs):.1f}" for at in range(len(updates))))
        for arm, runs in curves.items()
    ]
    report.table("held-out success, %, after so many updates", ("training tasks", *map(str, updates)), rows)
    ends = {arm: [run[-1].success for run in runs] for arm, runs in curves.items()}
    areas = {arm: [area(run) for run in runs] for arm, runs in curves.items()}
    figures = {
        "start": statistics.fmean(run[0].success for run in curves["original"]),
        "original": statistics.fmean(ends["original"]),
        "self_made": statistics.fmean(ends["self-made"]),
        "updates": options.updates,
        "lr": options.lr,
    }
    if len(seeds) > 1:
        for name, each in (("at the end", ends), ("over all measurements", areas)):
            found = gain(each["original"], each["self-made"])
            print(f"self-made minus original, {len(seeds)} pairs, {name}: {found} (95 % bootstrap)")
            key = "difference" if each is ends else "difference_area"
            figures |= {key: found.value, f"{key}_low": found.low, f"{key}_high": found.high}
    report.write(options.json, "self_made", figures, seeds)


if __name__ == "__main__":
    sys.exit(main())
