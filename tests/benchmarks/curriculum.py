"""Does the sandbox play what the curriculum plans, where no two requests have the same words?

    make bfcl && python -m tests.benchmarks.curriculum [--seeds 5] [--rounds 100] [--json FILE]

The curriculum, its levels and the rollout's choice of tasks, as the daemon joins them, without a model: a round is
eight tasks with eight attempts each, and between two rounds production brings forty runs, one in four with an outcome.
How likely an attempt succeeds is drawn once for each masked goal, and moves up by a twentieth of what is missing with
each group that is mixed. Worlds: BFCL's 1,053 requests of `live_multiple`, in the benchmark's order and shuffled; the
travel desk; the service desk. Of the tasks that a plan asked for by kind it is counted how many were of that kind when
they were played, how many were taken as they came, and how many numbers were looked at and neither played nor kept.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from actors.curation.curriculum import Curriculum
from actors.curation.pool import CuratorSettings
from actors.kinds.clusters import cluster_of
from actors.messages import Task, Trajectory
from actors.ports.environments import Environment, Split
from actors.rollout.own_tasks import OwnTasks
from adapters.environments.service_desk import ServiceDesk
from adapters.environments.travel import TravelDesk
from tests.benchmarks import report
from tests.support.fakes import FakeStore

BFCL = "python*/site-packages/bfcl_eval/data/BFCL_v4_live_multiple.json"
TASKS, ATTEMPTS = 8, 8
RUNS, REPORTED = 40, 0.25


class Requests(TravelDesk):
    """Goals that others wrote, over and over; nobody plays them here."""

    def __init__(self, goals: Sequence[str]) -> None:
        super().__init__()
        self._goals = goals

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        return Task(
            id=str(seed), goal=self._goals[seed % len(self._goals)], environment=self.name, spec={}, difficulty=0.5
        )


class Figures(msgspec.Struct):
    """Of one run."""

    planned: int
    honoured: int
    unplanned: int
    let_go: int
    waiting: int
    kinds: int
    played: int
    """Different kinds that were planned at least once."""
    milliseconds: float
    """Of choosing a round's tasks, the median."""


def requests() -> list[str]:
    """BFCL's."""
    found = next(Path(".venv-bfcl/lib").glob(BFCL), None)
    if found is None:
        raise SystemExit("no bfcl-eval in .venv-bfcl: run `make bfcl` first")
    rows = map(json.loads, found.read_text().splitlines())
    return [row["question"][0][-1]["content"] for row in rows]


async def rounds(environment: Environment, seed: int, count: int) -> Figures:
    """`count` rounds."""
    rng, curriculum = random.Random(seed), CuratorSettings().curriculum()
    watched = Watched(curriculum)
    own = OwnTasks(
        store=FakeStore(), environment=environment, planner=watched, families=None, first=0,
        lookahead=16,
    )  # fmt: skip
    chance: defaultdict[str, float] = defaultdict(rng.random)
    made, took, honoured = 0, list[float](), 0
    for version in range(count):
        begun = time.perf_counter()
        numbers = await own.take(TASKS)
        took.append(1e3 * (time.perf_counter() - begun))
        goals = [environment.sample(number, "train", None).goal for number in numbers]
        fitting = Counter(map(curriculum.kind, goals)) & Counter(watched.last)
        honoured += fitting.total()
        for number, goal in zip(numbers, goals, strict=True):
            solved = [float(rng.random() < chance[cluster_of(goal)]) for _ in range(ATTEMPTS)]
            for attempt, outcome in enumerate(solved):
                curriculum.saw(run(f"{number}-{attempt}", goal, outcome, version, group=str(number)))
            if len(set(solved)) > 1:
                chance[cluster_of(goal)] += 0.05 * (1.0 - chance[cluster_of(goal)])
        for _ in range(RUNS):
            goal = environment.sample(rng.randrange(1 << 30), "heldout", None).goal
            made += 1
            if rng.random() < REPORTED:
                curriculum.saw(run(f"p{made}", goal, float(rng.random() < chance[cluster_of(goal)]), version))
    counts = own.counts
    return Figures(
        counts["planned"], honoured, counts["unplanned"], counts["let_go"], own.waiting, len(curriculum.levels),
        len(watched.kinds), statistics.median(took),
    )  # fmt: skip


class Watched:
    """A planner whose plans are remembered."""

    def __init__(self, curriculum: Curriculum) -> None:
        self._curriculum = curriculum
        self.last: dict[str, int] = {}
        self.kinds: set[str] = set()

    def plan(self, count: int, offered: Mapping[str, int]) -> dict[str, int]:
        self.last = dict(self._curriculum.plan(count, offered))
        self.kinds |= self.last.keys()
        return self.last

    def kind(self, goal: str) -> str:
        return self._curriculum.kind(goal)


def run(key: str, goal: str, outcome: float, version: int, *, group: str = "") -> Trajectory:
    return Trajectory(
        id=key, source="sandbox" if group else "production", tenant="t", goal=goal, outcome=outcome, group=group,
        steps=(), started=0.0, ended=1.0, min_version=version, max_version=version,
    )  # fmt: skip


def worlds(seed: int) -> dict[str, Environment]:
    """By name."""
    ordered = requests()
    shuffled = random.Random(seed).sample(ordered, len(ordered))
    return {
        "BFCL, in order": Requests(ordered), "BFCL, shuffled": Requests(shuffled), "travel desk": TravelDesk(),
        "service desk": ServiceDesk(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    found: defaultdict[str, list[Figures]] = defaultdict(list)
    for seed in range(args.seeds):
        for name, world in worlds(seed).items():
            found[name].append(asyncio.run(rounds(world, seed, args.rounds)))
    rows = [
        (name, *(span([getattr(one, field) for one in figures]) for field in Figures.__struct_fields__))
        for name, figures in found.items()
    ]
    report.table("Planned and played", ("world", *Figures.__struct_fields__), rows)
    if args.json:
        args.json.write_bytes(msgspec.json.encode(found))


def span(values: Sequence[float]) -> str:
    """Median, and from where to where."""
    return f"{statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


if __name__ == "__main__":
    main()
