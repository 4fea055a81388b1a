"""The gate's error rates and power, by simulation.

    python -m tests.benchmarks.gate [--simulations 1000] [--aa 200] [--json build/gate.json]

First its test by betting (`actors.statistics.paired_sequential`), looked at after every batch, with the margin, alpha
and beta of the defaults. Then whole trials, holds judged again as the gatekeeper does: `SandboxTrial` with coins for
episodes, on chains of equal versions (A/A), each judged against the last that was promoted, and on a candidate that is
worse on one family alone.
"""

import random
from collections.abc import Callable, Iterable, Mapping

import anyio
import numpy as np
import structlog

from actors.gate.exam import Exam, Record
from actors.gate.sandbox_trial import SandboxTrial, SandboxTrialSettings
from actors.statistics.paired_sequential import p_value
from tests.benchmarks import report
from tests.support.fakes import FakeEngine, FakeEnvironment, FakeStore

SETTINGS = SandboxTrialSettings()
BUDGETS = (128, 512)
SCENARIOS = [
    # incumbent's success, candidate's minus it, correlation of the two on a task
    ("equal", 0.8, 0.0, 0.3),
    ("worse by the margin", 0.8, -0.05, 0.3),
    ("worse by 10 points", 0.8, -0.10, 0.3),
    ("worse by 20 points", 0.8, -0.20, 0.3),
    ("better by 5 points", 0.8, 0.05, 0.3),
    ("better by 10 points", 0.8, 0.10, 0.3),
]
FAMILIES = 4
SPREAD = 0.15
"""How much easier or harder than its family's average a task can be, for every version alike."""
Looks = list[tuple[int, np.ndarray]]
Decisions = list[tuple[str, int]]
"""With the tasks that each took."""
Skill = Callable[[int, int], float]
"""Success by version and family."""


def joint(incumbent: float, difference: float, correlation: float) -> list[float]:
    """Probabilities of (both, only the candidate, only the incumbent, neither) on one task."""
    candidate = incumbent + difference
    spread = (candidate * (1 - candidate) * incumbent * (1 - incumbent)) ** 0.5
    both = min(candidate * incumbent + correlation * spread, candidate, incumbent)
    return [both, candidate - both, incumbent - both, 1 - candidate - incumbent + both]


def shares(decisions: Decisions) -> tuple[float, float, float]:
    promoted, rejected = (sum(one == what for one, _ in decisions) for what in ("promote", "reject"))
    count = len(decisions)
    return promoted / count, rejected / count, sum(tasks for _, tasks in decisions) / count


def shown(decisions: Decisions) -> str:
    promoted, rejected, tasks = shares(decisions)
    return f"{100 * promoted:.1f} / {100 * rejected:.1f} / {tasks:.0f}"


def betting(looks: Looks) -> tuple[str, int]:
    for number, (both, mine, theirs, neither) in looks:
        differences = [1.0] * int(mine) + [-1.0] * int(theirs) + [0.0] * int(both + neither)
        if p_value(differences, -SETTINGS.margin) <= SETTINGS.alpha:
            return "promote", number
        if p_value([-value for value in differences], 0.0) <= SETTINGS.beta:
            return "reject", number
    return "hold", looks[-1][0]


def power(simulations: int, seed: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for number, (name, incumbent, difference, correlation) in enumerate(SCENARIOS):
        rng = np.random.default_rng([seed, number])
        made: dict[int, Decisions] = {budget: [] for budget in BUDGETS}
        for _ in range(simulations):
            batches = BUDGETS[-1] // SETTINGS.batch
            counts = rng.multinomial(SETTINGS.batch, joint(incumbent, difference, correlation), batches).cumsum(0)
            looks = [((at + 1) * SETTINGS.batch, counts[at]) for at in range(batches)]
            for budget, decisions in made.items():
                decisions.append(betting(looks[: budget // SETTINGS.batch]))
        rows.append([name, incumbent, *map(shown, made.values())])
        for budget, decisions in made.items():
            key = f"{name.replace(' ', '_').replace(',', '')}_betting_{budget}"
            named = zip(("promoted", "rejected", "tasks"), shares(decisions), strict=True)
            figures |= {f"{key}_{what}": value for what, value in named}
    columns = ["candidate", "incumbent", *(f"at most {budget}" for budget in BUDGETS)]
    report.table(f"promoted % / rejected % / mean tasks, {simulations} simulations each", columns, rows)
    return figures


class Coins(Exam):
    """An exam without episodes: a version solves a task with the probability that is its skill, or its family's."""

    def __init__(self, settings: SandboxTrialSettings, skill: Skill, seed: int) -> None:
        super().__init__(settings, environment=FakeEnvironment(), engine=FakeEngine(), seed=seed)
        self._attempts, self._skill, self._coin = settings.attempts, skill, seed

    def families(self, tasks: Iterable[int]) -> dict[str, tuple[str, list[int]]]:
        found: dict[str, tuple[str, list[int]]] = {}
        for number in tasks:
            found.setdefault(str(number % FAMILIES), (f"family {number % FAMILIES}", []))[1].append(number)
        return found

    async def play(self, version: int, missing: Mapping[int, int], record: Record) -> set[int]:
        for number, have in missing.items():
            easier = random.Random(f"{self._coin}-{number}").uniform(-SPREAD, SPREAD)
            rng = random.Random(f"{self._coin}-{number}-{version}-{have}")
            for _ in range(have, self._attempts):
                record(number, rng.random() < self._skill(version, number % FAMILIES) + easier)
        return set()


async def trial(seed: int, skill: Skill, candidates: int = 1) -> Decisions:
    """Decision and tasks of each candidate in turn, in one life of a gate."""
    gate = SandboxTrial(SETTINGS, environment=FakeEnvironment(), engine=FakeEngine(), store=FakeStore(), seed=seed)
    gate._exam = Coins(SETTINGS, skill, seed)  # pyright: ignore[reportPrivateUsage]

    async def load(version: int) -> None:
        pass

    found: Decisions = []
    incumbent, served = 0, [0]
    for candidate in range(1, candidates + 1):
        decision, tasks = "hold", 0
        for _ in range(4):  # a hold is judged again, as the gatekeeper does
            comparison = await gate.compare(candidate, incumbent, served, load)
            decision, tasks = comparison.decision, int(comparison.measurements["tasks"])
            if decision != "hold":
                break
        found.append((decision, tasks))
        if decision == "promote":
            incumbent = candidate
            served.append(candidate)
    return found


def whole(comparisons: int, seed: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    cases: list[tuple[str, Skill, int]] = [
        ("A/A, chains of 10 equal versions", lambda version, family: 0.8, 10),
        ("A/B, 15 better on three families, 30 worse on the fourth",
         lambda version, family: 0.75 + version * (-0.3 if family == 0 else 0.15), 1),
    ]  # fmt: skip
    for name, skill, length in cases:
        lives = range(seed, seed + comparisons // length)
        decisions = [one for life in lives for one in anyio.run(trial, life, skill, length)]
        rows.append([name, len(decisions), shown(decisions)])
        key = name.lower().replace("/", "").replace(",", "").replace(" ", "_")
        figures[f"{key}_promoted"], figures[f"{key}_rejected"], _ = shares(decisions)
    report.table("whole trials", ["case", "comparisons", "promoted % / rejected % / mean tasks"], rows)
    return figures


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--aa", type=int, default=200, help="whole comparisons of each case")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    random.seed(arguments.seed)
    figures = power(arguments.simulations, arguments.seed) | whole(arguments.aa, arguments.seed)
    report.write(arguments.json, "gate", figures, [arguments.seed])


if __name__ == "__main__":
    main()
