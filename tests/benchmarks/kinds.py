"""Runs of live traffic to 80 % of what is reachable: what a run is compared with, among ten unlike agents.

    python -m tests.benchmarks.kinds [--seeds 8] [--goals mixed] [--results FILE]

One policy serves ten agents of a company. They begin between 6 and 95 % and ask in templates or in free words; three of
them fail now and then whatever the policy does. One run in five is reported, at random, and no run has labels, so the
others teach nothing and are not played; eight reported ones make an update, and a gate that always says yes lets each
version serve at once. With `agent` a run is compared with what `actors.kinds` expects of its agent, with `batch` with
the mean of the other seven. The policy reads the desk's goal in both, for the demo's model knows no English: what is
measured is what estimates do to the advantages. Seeds are paired: tasks, agents, words and measured tasks are the same.
"""

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np

from actors.messages import BatchItem
from actors.statistics.off_policy import student
from adapters.environments.travel import Drift
from adapters.environments.travel.drift import Variant
from daemon.demo.worlds import WORLDS
from tests.benchmarks import report
from tests.benchmarks.ablation.attempts import Attempt
from tests.benchmarks.ablation.loop import Loop, Setup

ARMS = ("batch", "agent")
WANTED, REPORTED = 0.8, 5
"""Of what is reachable; one run of so many is reported."""
RUNS, EVERY, MEASURED = 8, 4, 12
"""Reported runs of an update, updates between two measurements, held-out tasks of an agent in each."""

_OPENINGS = ("hello,", "hi there,", "good morning,", "dear team,", "it is me again:", "quick one:", "urgent!", "")
_ASKING = ("please", "could you", "can somebody", "I need you to", "we would like you to", "would you kindly", "pls")
_FIND = ("find", "look up", "tell us about", "search for", "check for")
_BOOK = ("book", "reserve", "get us", "arrange", "buy")
_FLIGHT = ("a flight", "a plane ticket", "an air ticket", "a seat on a flight", "flights")
_CANCEL = ("cancel", "call off", "undo", "withdraw", "cancel completely")
_ORDER = ("the order", "the booking", "that reservation", "the order we placed", "what was ordered")
_CLOSINGS = ("thanks a lot", "the cheaper the better", "tell me when it is done", "the boss is waiting", "no rush", "")
_FILLERS = ("really", "again", "today", "kindly", "for our office", "as usual", "at last", "if you can", "this time")


def paraphrase(rng: Random, goal: str) -> str:
    """What the desk's `goal` asks for, in other words."""
    parts = [_CANCEL, _ORDER] if "Cancel" in goal else []
    if "a flight" in goal:
        parts += [_FIND if "Find" in goal else _BOOK, _FLIGHT]
    drawn = [rng.choice(words) for words in (_OPENINGS, _ASKING, *parts, _FILLERS, _CLOSINGS)]
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


class MixedLoop(Loop):
    """The ablation's loop on the traffic of the ten."""

    def __init__(self, arm: str, setup: Setup, seed: int, goals: str, work: Path) -> None:
        super().__init__(setup, WORLDS["travel"].warm_start, seed, work)
        self._arm, self._phrases, self._traffic = arm, Random(f"phrases-{seed}"), Random(f"traffic-{seed}")
        self._variants = [Variant.of(Drift(rename=agent.rename)) for agent in AGENTS]
        self._asked: list[int] = []
        self._free = [goals == "free" or (goals == "mixed" and agent.free) for agent in AGENTS]

    def _attempts(self) -> Iterator[Attempt]:
        self._asked = [self._traffic.randrange(len(AGENTS)) for _ in range(RUNS)]
        for agent in self._asked:
            task = self._desk.sample(self._traffic.getrandbits(31), "train", AGENTS[agent].families)
            yield Attempt(task, self._variants[agent])

    def measure(self) -> float:
        """Held-out success, sampled at temperature 1, as a share of what is reachable."""
        attempts = [
            Attempt(self._desk.sample(self._seed * MEASURED + i, "heldout", agent.families), variant)
            for agent, variant in zip(AGENTS, self._variants, strict=True)
            for i in range(MEASURED)
        ]
        self._player.play(attempts, Random(f"measuring-{self._seed}"))
        solved = np.array([attempt.solved for attempt in attempts]).reshape(len(AGENTS), MEASURED).mean(1)
        return float(np.average(solved, weights=[agent.ceiling for agent in AGENTS]))

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
        return super()._expecting(live) if self._arm == "agent" else live


def cell(arm: str, setup: Setup, seed: int, goals: str) -> list[float]:
    """One run of the benchmark: success before it, and after every `EVERY` updates."""
    with tempfile.TemporaryDirectory() as work:
        loop = MixedLoop(arm, setup, seed, goals, Path(work))
        curve = [loop.measure()]
        for number in range(1, setup.updates + 1):
            loop.update()
            if number % EVERY == 0:
                curve.append(loop.measure())
    return curve


def runs_to(curve: Sequence[float]) -> int:
    """Production runs until the curve, each point the mean of it and its neighbours, is at `WANTED`; else the last."""
    smooth = [curve[0], *(float(np.mean(curve[i - 1 : i + 2])) for i in range(1, len(curve)))]
    return next((i for i, value in enumerate(smooth) if value >= WANTED), len(curve) - 1) * EVERY * RUNS * REPORTED


def show(cells: Mapping[tuple[str, int], Sequence[float]]) -> dict[str, float]:
    """A table of what has run in all arms, four seeds or more, and its figures."""
    seeds = sorted({seed for _, seed in cells if all((arm, seed) in cells for arm in ARMS)})
    rows: list[tuple[object, ...]] = []
    figures: dict[str, float] = {}
    for arm in ARMS:
        runs = [runs_to(cells[arm, seed]) for seed in seeds]
        success = 100 * np.array([np.mean(cells[arm, seed]) for seed in seeds])
        more = success - 100 * np.array([np.mean(cells["batch", seed]) for seed in seeds])
        reach = student(0.95, len(seeds) - 1) * float(more.std(ddof=1)) / len(seeds) ** 0.5
        rows.append((
            arm, " ".join(map(str, runs)), f"{success.mean():.1f} ({success.std(ddof=1):.1f})",
            f"{more.mean():+.1f} [{more.mean() - reach:+.1f}, {more.mean() + reach:+.1f}]",
        ))  # fmt: skip
        figures |= {f"runs_to_80_{arm}": float(np.mean(runs)), f"more_than_batch_{arm}": float(more.mean())}
    columns = ("compared with", "runs to 80 %, by seed", "mean success, % (deviation)", "more than batch")
    report.table(f"{len(seeds)} seeds", columns, rows)
    return figures


def main() -> None:
    parser = report.arguments("Runs of live traffic to 80 % of what is reachable, by what a run is compared with.")
    parser.add_argument("--seeds", type=int, default=8, help="runs of each arm (8)")
    parser.add_argument("--updates", type=int, default=64, help="of each run (64)")
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate of all arms (2e-4)")
    parser.add_argument("--goals", choices=("mixed", "desk", "free"), default="mixed", help="how agents are asked")
    parser.add_argument("--results", type=Path, default=Path("build/kinds.jsonl"), help="what has run; not run again")
    options = parser.parse_args()
    live = {"lr": options.lr, "credit": {"alpha": 0.0}}
    setup = Setup(groups=RUNS, group_size=1, updates=options.updates, learner=live)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a+", encoding="utf-8") as file:
        file.seek(0)
        cells = {(one["arm"], one["seed"]): one["curve"] for one in map(json.loads, file)}
        for seed, arm in itertools.product(range(options.seeds), ARMS):
            if (arm, seed) not in cells:
                curve = cells[arm, seed] = cell(arm, setup, seed, options.goals)
                file.write(json.dumps({"arm": arm, "seed": seed, "curve": curve}) + "\n")
                file.flush()
    report.write(options.json, "kinds", show(cells), list(range(options.seeds)))


if __name__ == "__main__":
    main()
