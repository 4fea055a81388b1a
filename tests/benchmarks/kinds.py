"""Runs of live traffic to 80 % of what is reachable: what a run is compared with, among ten unlike agents.

    python -m tests.benchmarks.kinds [--seeds 8] [--goals mixed] [--results FILE] [--report]

One policy serves ten agents of a company. They begin between 6 and 95 % and ask in templates or in free words; three of
them fail now and then whatever the policy does. One run in five is reported, at random, and no run has labels, so the
others teach nothing and are not played; eight reported ones make an update, and a gate that always says yes lets each
version serve at once. The arms differ in the levels of `actors.kinds` that a run's expected success comes from; `batch`
has none, and takes the mean of the other seven. The policy reads the desk's goal in all of them, because the demo's
model knows no English: what is measured is what the levels do to the advantages. Seeds are paired: tasks, agents, words
and measured tasks are the same in every arm.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np

from actors.kinds.kinds import Kinds
from actors.messages import BatchItem, Trajectory
from actors.statistics.off_policy import student
from adapters.environments.travel import Drift
from adapters.environments.travel.drift import Variant
from daemon.demo.worlds import WORLDS
from tests.benchmarks import report
from tests.benchmarks.ablation.attempts import Attempt
from tests.benchmarks.ablation.loop import Loop, Setup

LEVELS = {"batch": 0, "agent": 2, "neighbourhood": 3}
"""By arm: levels of the estimates, the tenant's first."""
WANTED, REPORTED = 0.8, 5
"""Of what is reachable; one run of so many is reported."""
RUNS, EVERY, MEASURED = 8, 4, 12
"""Reported runs of an update, updates between two measurements, held-out tasks of an agent in each."""

_OPENINGS = (
    "hello,", "hi there,", "good morning,", "dear team,", "it is me again:", "quick one:", "sorry to bother you,",
    "as discussed on the phone,", "I am in a hurry,", "my colleague told me to write here.", "urgent!", "",
)  # fmt: skip
_ASKING = ("please", "could you", "can somebody", "I need you to", "we would like you to", "would you kindly", "pls")
_FIND = ("find", "look up", "tell us about", "search for", "check for")
_BOOK = ("book", "reserve", "get us", "arrange", "buy")
_FLIGHT = ("a flight", "a plane ticket", "an air ticket", "a seat on a flight", "flights")
_CANCEL = ("cancel", "call off", "undo", "withdraw", "cancel completely")
_ORDER = ("the order", "the booking", "that reservation", "the order we placed", "what was ordered")
_CLOSINGS = (
    "thanks a lot", "before noon if that is possible", "the cheaper the better", "tell me when it is done",
    "it rains here anyway", "the boss is waiting", "we talked about this last week", "same as every year",
    "do not call me back", "send the papers by post", "no rush", "",
)  # fmt: skip
_FILLERS = ("really", "again", "today", "kindly", "for our office", "as usual", "at last", "if you can", "this time")


def paraphrase(rng: Random, goal: str) -> str:
    """What the desk's `goal` asks for, in other words."""
    parts = [_OPENINGS, _ASKING]
    if "Cancel" in goal:
        parts += [_CANCEL, _ORDER]
        parts += [("and",)] if "ook a flight" in goal else []
    if "Find" in goal:
        parts += [_FIND, _FLIGHT]
    elif "ook a flight" in goal:
        parts += [_BOOK, _FLIGHT]
    drawn = [rng.choice(words) for words in (*parts, _FILLERS, _CLOSINGS)]
    return " ".join(filter(None, drawn))


class Agent(NamedTuple):
    """One of the ten."""

    families: str
    """Kinds of ticket that it is asked."""
    rename: dict[str, str]
    ceiling: float
    """How often what it did right is a success: cards are declined whatever an agent does."""
    free: bool
    """Whether it is asked in free words; else in the desk's templates."""


AGENTS = (
    Agent("ABCD", {}, 1.0, True),
    Agent("AD", {"cancel": "drop"}, 1.0, False),
    Agent("B", {"quote": "price"}, 1.0, True),
    Agent("D", {"cancel": "drop"}, 1.0, False),
    Agent("A", {"search_flight": "find_flight"}, 1.0, True),
    Agent("BC", {"search_flight": "find_flight"}, 1.0, False),
    Agent("L", {}, 1.0, False),
    Agent("B", {"book": "buy"}, 0.5, True),
    Agent("CD", {"quote": "price"}, 0.6, True),
    Agent("A", {"quote": "price"}, 0.12, False),
)


class LeveledKinds(Kinds):
    """Kinds, whose estimates know the first `levels` levels alone."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self._levels = levels

    def _path(self, run: Trajectory) -> tuple[str, ...]:
        return super()._path(run)[: self._levels]

    def names(self, run: Trajectory) -> tuple[str, str]:
        """Agent and neighbourhood, which labels are compared by; there are none here."""
        return run.steps[0].role, ""


class MixedLoop(Loop):
    """The ablation's loop on the traffic of the ten."""

    def __init__(self, arm: str, setup: Setup, seed: int, goals: str, work: Path) -> None:
        super().__init__(setup, WORLDS["travel"].warm_start, seed, work)
        self._levels, self._phrases, self._traffic = LEVELS[arm], Random(f"phrases-{seed}"), Random(f"traffic-{seed}")
        self.kinds = LeveledKinds(self._levels)
        self._variants = [Variant.of(Drift(rename=agent.rename)) for agent in AGENTS]
        self._asked: list[int] = []
        self._free = [goals == "free" or (goals == "mixed" and agent.free) for agent in AGENTS]

    def _attempts(self) -> Iterator[Attempt]:
        self._asked = [self._traffic.randrange(len(AGENTS)) for _ in range(RUNS)]
        for agent in self._asked:
            task = self._desk.sample(self._traffic.getrandbits(31), "train", AGENTS[agent].families)
            yield Attempt(task, self._variants[agent])

    def successes(self) -> list[float]:
        """Share of the held-out tasks that each agent solves, sampled at temperature 1."""
        attempts = [
            Attempt(self._desk.sample(self._seed * MEASURED + i, "heldout", agent.families), variant)
            for agent, variant in zip(AGENTS, self._variants, strict=True)
            for i in range(MEASURED)
        ]
        self._player.play(attempts, Random(f"measuring-{self._seed}"))
        solved = np.array([attempt.solved for attempt in attempts]).reshape(len(AGENTS), MEASURED)
        return [float(one) for one in solved.mean(1)]

    def _expecting(self, fresh: Sequence[BatchItem]) -> Sequence[BatchItem]:
        live: list[BatchItem] = []
        for number, item in zip(self._asked, fresh, strict=True):
            run, agent = item.attributed.trajectory, AGENTS[number]
            lucky = self._traffic.random() < agent.ceiling
            goal = paraphrase(self._phrases, run.goal) if self._free[number] else run.goal
            role = f"agent{number}#{number:08x}"
            run = msgspec.structs.replace(
                run, source="production", goal=goal, outcome=float(lucky and run.outcome == 1.0),
                # An agent is known by its tools as well, and each has one of its own.
                tools=json.dumps([*self._variants[number].tools(), {"function": {"name": f"log_{number}"}}]).encode(),
                steps=tuple(msgspec.structs.replace(step, role=role) for step in run.steps),
            )  # fmt: skip
            attributed = msgspec.structs.replace(item.attributed, trajectory=run)
            live.append(msgspec.structs.replace(item, attributed=attributed))
        return super()._expecting(live) if self._levels else live


def reached(successes: Sequence[float]) -> float:
    """Share of what is reachable."""
    return sum(agent.ceiling * own for agent, own in zip(AGENTS, successes, strict=True)) / sum(
        agent.ceiling for agent in AGENTS
    )


def cell(arm: str, setup: Setup, seed: int, goals: str) -> dict[str, object]:
    """One run of the benchmark; its curve is (updates, share of what is reachable, by agent)."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as work:
        loop = MixedLoop(arm, setup, seed, goals, Path(work))
        first = loop.successes()
        curve: list[tuple[int, float, list[float]]] = [(0, reached(first), first)]
        for number in range(1, setup.updates + 1):
            loop.update()
            if number % EVERY == 0:
                found = loop.successes()
                curve.append((number, reached(found), found))
    return {"arm": arm, "seed": seed, "curve": curve, "cpu": round(time.process_time() - began)}


def runs_to(curve: Sequence[tuple[int, float, list[float]]]) -> int:
    """Production runs until the curve, each point the mean of it and its neighbours, is at `WANTED`; else the last."""
    values = [value for _, value, _ in curve]
    for i, (updates, value, _) in enumerate(curve):
        if (value if i == 0 else np.mean(values[i - 1 : i + 2])) >= WANTED:
            return updates * RUNS * REPORTED
    return curve[-1][0] * RUNS * REPORTED


def show(path: Path) -> dict[str, float]:
    """A table of what has run, by arm, and its figures."""
    cells = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    runs = {(one["arm"], one["seed"]): runs_to(one["curve"]) for one in cells}
    areas = {(one["arm"], one["seed"]): statistics.mean(at[1] for at in one["curve"]) for one in cells}
    seeds = sorted({seed for _, seed in runs if all((arm, seed) in runs for arm in LEVELS)})
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float] = {}
    for arm in LEVELS:
        own = [runs[arm, seed] for seed in seeds]
        saved, share = ([found[arm, seed] - found["batch", seed] for seed in seeds] for found in (runs, areas))
        rows.append((
            arm, f"{statistics.mean(own):.0f} ({statistics.stdev(own):.0f})", " ".join(map(str, own)),
            _paired(saved, 1),
            f"{100 * statistics.mean(areas[arm, seed] for seed in seeds):.1f}", _paired(share, 100),
        ))  # fmt: skip
        figures |= {f"runs_to_80_{arm}": statistics.mean(own), f"more_than_batch_{arm}": statistics.mean(saved)}
    columns = ("compared with", "runs to 80 % (deviation)", "by seed", "more than batch", "mean success, %", "more")
    report.table(f"{len(seeds)} seeds", columns, rows)
    return figures


def _paired(differences: Sequence[float], scale: float) -> str:
    """Mean, and its 95 % interval by Student."""
    mean, error = scale * statistics.mean(differences), scale * statistics.stdev(differences) / len(differences) ** 0.5
    reach = student(0.95, len(differences) - 1) * error
    return f"{mean:+.1f} [{mean - reach:+.1f}, {mean + reach:+.1f}]"


def main() -> None:
    parser = report.arguments("Runs of live traffic to 80 % of what is reachable, by what a run is compared with.")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each arm (8)")
    parser.add_argument("--updates", type=int, default=64, help="of each run (64)")
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate of all arms (2e-4)")
    parser.add_argument(
        "--goals", choices=("mixed", "desk", "free"), default="mixed", help="in templates or free words"
    )
    parser.add_argument("--results", type=Path, default=Path("build/kinds.jsonl"), help="what has run; not run again")
    parser.add_argument("--report", action="store_true", help="tables of what has run")
    options = parser.parse_args()
    if not options.report:
        setup = Setup(groups=RUNS, group_size=1, updates=options.updates,
                      learner={"lr": options.lr, "credit": {"alpha": 0.0}})  # fmt: skip
        options.results.parent.mkdir(parents=True, exist_ok=True)
        with options.results.open("a+", encoding="utf-8") as file:
            file.seek(0)
            done = {(one["arm"], one["seed"]) for one in map(json.loads, file)}
            for seed in range(options.seeds):
                for arm in LEVELS:
                    if (arm, seed) not in done:
                        file.write(json.dumps(cell(arm, setup, seed, options.goals)) + "\n")
                        file.flush()
    report.write(options.json, "kinds", show(options.results), list(range(options.seeds)))


if __name__ == "__main__":
    main()
