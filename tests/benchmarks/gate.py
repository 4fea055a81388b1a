"""The gate's error rates and power, by simulation: the test by betting beside the fixed-size interval.

    python -m tests.benchmarks.gate [--simulations 1000] [--aa 200] [--json build/gate.json]

Three designs, all with the margin, alpha and beta of the defaults, on the same simulated tasks:

* fixed: one look at Newcombe's paired interval at the budget (confidence 1 - 2 alpha).
* peeked: the same interval looked at after every batch, which it is not made for.
* betting: `actors.gate.sequential`, looked at after every batch; what the gate does.

Then whole trials: `SandboxTrial` with a fake engine and environment, candidates that are exactly as good as the
incumbent (A/A), and candidates that are worse. And chains of
equal versions, each judged against the last that was promoted.
"""

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
import numpy as np
import structlog

from actors.gate.sequential import surely_above, surely_below
from actors.gate_statistics import Pairs, decide, newcombe_paired
from actors.trials import SandboxTrial, SandboxTrialSettings
from tests.benchmarks import report
from tests.support.fakes import FakeEngine, FakeEnvironment, FakeStore

SETTINGS = SandboxTrialSettings()
BUDGETS = (128, 512)
SCENARIOS = [
    # incumbent's success, candidate's minus it, correlation of the two on a task
    ("equal", 0.8, 0.0, 0.3),
    ("equal, alike", 0.9, 0.0, 0.6),
    ("equal, half", 0.5, 0.0, 0.3),
    ("worse by the margin", 0.8, -0.05, 0.3),
    ("worse by 10 points", 0.8, -0.10, 0.3),
    ("worse by 20 points", 0.8, -0.20, 0.3),
    ("better by 5 points", 0.8, 0.05, 0.3),
    ("better by 10 points", 0.8, 0.10, 0.3),
    ("better by 30 points", 0.4, 0.30, 0.3),
]
Looks = list[tuple[int, np.ndarray]]


class Tally:
    """Decisions of one design in one scenario."""

    def __init__(self) -> None:
        self.promoted = self.rejected = self.runs = self.tasks = 0

    def add(self, decision: str, tasks: int) -> None:
        self.runs += 1
        self.promoted += decision == "promote"
        self.rejected += decision == "reject"
        self.tasks += tasks

    def __str__(self) -> str:
        promoted, rejected = 100 * self.promoted / self.runs, 100 * self.rejected / self.runs
        return f"{promoted:.1f} / {rejected:.1f} / {self.tasks / self.runs:.0f}"


def joint(incumbent: float, difference: float, correlation: float) -> list[float]:
    """Probabilities of (both, only the candidate, only the incumbent, neither) on one task."""
    candidate = incumbent + difference
    spread = (candidate * (1 - candidate) * incumbent * (1 - incumbent)) ** 0.5
    both = min(candidate * incumbent + correlation * spread, candidate, incumbent)
    return [both, candidate - both, incumbent - both, 1 - candidate - incumbent + both]


def fixed(looks: Looks) -> tuple[str, int]:
    number, counts = looks[-1]
    return decide(newcombe_paired(Pairs(*map(int, counts)), 1 - 2 * SETTINGS.alpha), SETTINGS.margin), number


def peeked(looks: Looks) -> tuple[str, int]:
    for number, counts in looks:
        decision = decide(newcombe_paired(Pairs(*map(int, counts)), 1 - 2 * SETTINGS.alpha), SETTINGS.margin)
        if decision != "hold":
            return decision, number
    return "hold", looks[-1][0]


def betting(looks: Looks) -> tuple[str, int]:
    for number, (both, mine, theirs, neither) in looks:
        differences = [1.0] * int(mine) + [-1.0] * int(theirs) + [0.0] * int(both + neither)
        if surely_above(differences, -SETTINGS.margin, SETTINGS.alpha):
            return "promote", number
        if surely_below(differences, 0.0, SETTINGS.beta):
            return "reject", number
    return "hold", looks[-1][0]


DESIGNS: dict[str, Callable[[Looks], tuple[str, int]]] = {"fixed": fixed, "peeked": peeked, "betting": betting}


def power(simulations: int, seed: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for number, (name, incumbent, difference, correlation) in enumerate(SCENARIOS):
        rng = np.random.default_rng([seed, number])
        tallies = {(design, budget): Tally() for design in DESIGNS for budget in BUDGETS}
        for _ in range(simulations):
            batches = BUDGETS[-1] // SETTINGS.batch
            counts = rng.multinomial(SETTINGS.batch, joint(incumbent, difference, correlation), batches).cumsum(0)
            looks = [((at + 1) * SETTINGS.batch, counts[at]) for at in range(batches)]
            for (design, budget), tally in tallies.items():
                tally.add(*DESIGNS[design](looks[: budget // SETTINGS.batch]))
        rows.append([name, incumbent, *tallies.values()])
        for (design, budget), tally in tallies.items():
            key = f"{name.replace(' ', '_').replace(',', '')}_{design}_{budget}"
            figures |= {
                f"{key}_promoted": tally.promoted / tally.runs,
                f"{key}_rejected": tally.rejected / tally.runs,
                f"{key}_tasks": tally.tasks / tally.runs,
            }
    columns = ["candidate", "incumbent", *(f"{design} {budget}" for design in DESIGNS for budget in BUDGETS)]
    report.table(f"promoted % / rejected % / mean tasks, {simulations} simulations each", columns, rows)
    return figures


class Lucky(FakeEngine):
    """Each version has luck of its own."""

    async def chat(self, body):
        return await super().chat({**body, "seed": f"{body['seed']}-{self.current}-{self.name}"})


async def trial(seed: int, skill: dict[int, float], candidates: int = 1) -> list[tuple[str, int, int]]:
    """Decision, tasks and incumbent of each candidate in turn, in one life of a gate."""
    engine, store = Lucky(f"e{seed}", skill), FakeStore()
    settings = msgspec.structs.replace(SETTINGS, attempts=2, max_steps=4)
    gate = SandboxTrial(settings, environment=FakeEnvironment(), engine=engine, store=store, seed=seed)

    async def load(version: int) -> None:
        engine.current = version

    found: list[tuple[str, int, int]] = []
    incumbent, served = 0, [0]
    for candidate in range(1, candidates + 1):
        engine.current = candidate
        decision, tasks = "hold", 0
        for _ in range(4):  # a hold is judged again, as the gatekeeper does
            comparison = await gate.compare(candidate, incumbent, served, load)
            decision, tasks = comparison.decision, int(comparison.measurements["tasks"])
            if decision != "hold":
                break
        found.append((decision, tasks, incumbent))
        if decision == "promote":
            incumbent = candidate
            served.append(candidate)
    return found


def whole(comparisons: int, seed: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    cases = [("A/A", 0.8, 0.8), ("A/B, worse by 10 points", 0.8, 0.7), ("A/B, worse by 20 points", 0.8, 0.6)]
    for name, old, new in cases:
        tally = Tally()
        for number in range(comparisons):
            for decision, tasks, _ in anyio.run(trial, seed + number, {0: old, 1: new}):
                tally.add(decision, tasks)
        rows.append([name, tally.runs, tally])
        key = name.lower().replace("/", "").replace(",", "").replace(" ", "_")
        figures |= {f"{key}_promoted": tally.promoted / tally.runs, f"{key}_rejected": tally.rejected / tally.runs}
    chain = Tally()
    length = 10
    for number in range(max(1, comparisons // length)):
        skill = dict.fromkeys(range(length + 1), 0.8)
        for decision, tasks, _ in anyio.run(trial, seed + 10_000 + number, skill, length):
            chain.add(decision, tasks)
    rows.append([f"A/A, chains of {length} equal versions", chain.runs, chain])
    figures |= {"chain_promoted": chain.promoted / chain.runs, "chain_rejected": chain.rejected / chain.runs}
    report.table("whole trials", ["case", "comparisons", "promoted % / rejected % / mean tasks"], rows)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--aa", type=int, default=200, help="whole comparisons of each case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    random.seed(arguments.seed)
    figures = power(arguments.simulations, arguments.seed) | whole(arguments.aa, arguments.seed)
    report.write(arguments.json, "gate", figures, [arguments.seed])


if __name__ == "__main__":
    main()
