"""What do a hundred thousand agents, each with a goal of its own, cost the curator in time and memory?

    python -m tests.benchmarks.flood [--runs 100000] [--json FILE]

Runs with outcomes go through what the curator asks and tells for each (curriculum, kinds, pool), without store and bus.
A quiet party sends one run in a hundred, of three kinds; all others are of one loud party: another agent, another tool
list and another goal each time. Half of its goals are in words that it made up, half in two thousand words that all of
them share. One in a thousand is a megabyte long. Reported are the time of a run at the start and at the end, the size
of the process, of what is saved, and whether what was known of the quiet party still is.
"""

import argparse
import random
import resource
import statistics
import time
from itertools import product
from pathlib import Path

import msgspec

from actors.curation.pool import CuratorSettings, TrainingPool
from actors.kinds.kinds import Kinds
from actors.kinds.levels import REST
from actors.messages import Attributed, Attribution, Step, StepLabel, Trajectory
from tests.benchmarks import report

QUIET = ("refund the invoice that was paid twice", "reset the password of my account", "where is my parcel now")


_COMMON = ["".join(one) for one in product("blrst", "aeio", "bdglmnprst", "aeiou", "kn")]


class Curation:
    """What the curator does with a run, without the books."""

    def __init__(self) -> None:
        settings = CuratorSettings(groups_per_batch=0)
        self.curriculum, self.kinds = settings.curriculum(), Kinds()
        self.pool = TrainingPool(settings, self.curriculum, kinds=self.kinds, exam=lambda key: False)

    def take(self, run: Trajectory) -> None:
        label = Attribution(labels=(StepLabel("GOOD"),), judge="j", rubric="r")
        self.pool.add(Attributed(id=run.id, trajectory=run, attribution=label, cluster="c"), run.ended)
        self.curriculum.saw(run)
        self.kinds.tell(run)
        self.pool.take_drops()


def loud(rng: random.Random, number: int) -> Trajectory:
    """A run of an agent that nobody has met, at a goal that nobody has had."""
    words = ["".join(rng.choices("bcdfghklmnprstvwz", k=7)) for _ in range(8)]
    if number % 2:
        words[2:] = rng.choices(_COMMON, k=20)
    goal = " ".join(words) * (15_000 if number % 1000 == 999 else 1)
    return Trajectory(
        id=f"l{number}", tenant="t", caller="loud", goal=goal, tools=b'[{"name":"%s"}]' % words[0].encode(),
        steps=(Step(exchange_id="x", role=f"{words[1]}#{number:x}"),), outcome=float(number % 2), started=0.0,
        ended=float(number), min_version=0, max_version=0,
    )  # fmt: skip


def quiet(number: int) -> Trajectory:
    """A run of the party that has three kinds."""
    return Trajectory(
        id=f"q{number}", tenant="t", caller="quiet", goal=QUIET[number % 3], tools=b'[{"name":"act"}]',
        steps=(Step(exchange_id="x", role="clerk#1"),), outcome=1.0, started=0.0, ended=float(number), min_version=0,
        max_version=0,
    )  # fmt: skip


class Figures(msgspec.Struct):
    runs: int
    first_milliseconds: float
    """Median of a run, of the first thousand,"""
    last_milliseconds: float
    """of the last,"""
    most_milliseconds: float
    """and of any run, the most."""
    draw_milliseconds: float
    """Of a batch out of a full pool."""
    grown_megabytes: float
    """Of the process since the first thousand runs."""
    saved_megabytes: float
    known: bool
    """Whether the quiet party's kinds are, and what was to be expected of its runs."""


def flood(runs: int) -> Figures:
    """Send so many."""
    rng, made, took, size = random.Random(0), Curation(), list[float](), 0.0
    for number in range(runs):
        run = quiet(number // 100) if number % 100 == 0 else loud(rng, number)
        begun = time.perf_counter()
        made.take(run)
        took.append(1e3 * (time.perf_counter() - begun))
        size = size or (number == 1000 and resident())
    begun = time.perf_counter()
    made.pool.select(float(runs))
    draw = 1e3 * (time.perf_counter() - begun)
    estimate = made.kinds.estimate(quiet(runs))
    known = all(made.curriculum.kind(goal) != REST for goal in QUIET) and estimate is not None and estimate.mean > 0.8
    saved = len(made.kinds.to_save() or b"") + len(made.curriculum.levels.to_save() or b"")
    return Figures(
        runs=runs, first_milliseconds=statistics.median(took[:1000]), last_milliseconds=statistics.median(took[-1000:]),
        most_milliseconds=max(took), draw_milliseconds=draw, grown_megabytes=resident() - size,
        saved_megabytes=saved / 1e6, known=known,
    )  # fmt: skip


def resident() -> float:
    """Megabytes that the process has, or had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="*", default=[100_000])
    parser.add_argument("--json", type=Path, help="file for the figures")
    args = parser.parse_args()
    found = [flood(runs) for runs in args.runs]
    rows = [
        tuple(f"{value:.3g}" if isinstance(value, float) else value for value in msgspec.structs.astuple(one))
        for one in found
    ]
    report.table("A flood", Figures.__struct_fields__, rows)
    if args.json:
        args.json.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
