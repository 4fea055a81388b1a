"""Streams of simulated runs: agents whose behaviour is known, so that one knows what a monitor should say of them."""

import random
from collections.abc import Iterator, Sequence

import msgspec

from actors.monitoring.agent_outcomes import AgentOutcomes
from actors.monitoring.engine import EngineWatch
from actors.monitoring.history import History, Swap
from actors.monitoring.judge_drift import JudgeDrift
from actors.monitoring.monitor import Finding, Monitor
from actors.monitoring.settings import SAMPLE, USUAL, VERSIONS, WINDOW, Actions
from actors.monitoring.tools import ToolDrift
from actors.monitoring.versions import version_monitors
from actors.tool_results.runs import RunSummary


class Behaviour(msgspec.Struct, frozen=True):
    """How runs of one version turn out. The defaults are a middling agent."""

    success: float = 0.7
    """Share of runs that succeed."""
    good: tuple[float, float] = (0.5, 0.8)
    """Chance that the judge calls a step good, in a failure and in a success."""
    abstain: float = 0.2
    invalid: float = 0.02
    """Chance of a run with an invalid call; the same of the next two."""
    asks: float = 0.1
    loops: float = 0.02
    length: float = 40.0
    """Median tokens of a step; log-normal with sigma 0.5, which has a heavy tail."""
    steps: float = 4.0
    """Mean of the steps after the first two; geometric."""
    kinds: tuple[float, ...] = (4, 3, 2, 1, 1)
    """Weights of the kinds of goal."""
    outcomes: float = 1.0
    """Share of runs whose outcome is ever known."""


def runs(rng: random.Random, version: int, how: Behaviour, first: int, count: int) -> Iterator[RunSummary]:
    """`count` runs, numbered from `first`, one a second."""
    for number in range(first, first + count):
        solved = rng.random() < how.success
        steps = 2
        while rng.random() > 1 / (1 + how.steps) and steps < 40:
            steps += 1
        labels = ["A" if rng.random() < how.abstain else "G" if rng.random() < how.good[solved] else "B"
                  for _ in range(steps)]  # fmt: skip
        written = sum(how.length * rng.lognormvariate(0.0, 0.5) for _ in range(steps))
        outcome = float(solved) if rng.random() < how.outcomes else None
        invalid, asks, loops = (rng.random() < chance for chance in (how.invalid, how.asks, how.loops))
        rng.lognormvariate(0.0, 0.3)  # passed over: so a seed still gives what it gave in docs/measured.md
        kind = f"g{rng.choices(range(len(how.kinds)), how.kinds)[0]}"
        yield RunSummary(
            id=f"r{number}", tenant="default", started=float(number), ended=number + 0.5, low=version, high=version,
            tools="desk", steps=steps, errors=0, outcome=outcome, invalid=int(invalid), asks=int(asks), loops=loops,
            length=written / steps, tokens=True, cluster=kind, kind=kind, good=labels.count("G"), bad=labels.count("B"),
        )  # fmt: skip


class Watch:
    """All monitors over one stream, as the sentinel runs them."""

    def __init__(self, actions: Actions = USUAL) -> None:
        self.history, self.tools, self.engine = History(WINDOW, SAMPLE, VERSIONS), ToolDrift(), EngineWatch()
        self.monitors: list[Monitor] = [
            *version_monitors(actions),
            AgentOutcomes(actions.success),
            self.engine,
            JudgeDrift(actions.judge_drift),
            self.tools,
        ]

    def add(self, batch: Sequence[RunSummary]) -> list[Finding]:
        """Take in runs and look once; a rollback condemns its version."""
        for run in batch:
            self.history.add(run)
            self.history.fresh.judged.append(run)
        found: list[Finding] = []
        for monitor in self.monitors:
            for finding in monitor.look(self.history, batch[-1].ended):
                if finding.action == "rollback":
                    self.history.condemn(int(finding.details["version"]))
                found.append(finding)
        self.history.looked()
        return found

    def swap(self, version: int, at: float) -> None:
        """`version` serves from second `at` on."""
        self.history.swapped(Swap("serving", version, version - 1, at))


def stream(seed: int, chain: Sequence[tuple[Behaviour, int]], *, batch: int = 4) -> Iterator[tuple[int, int, Finding]]:
    """Let versions serve one after the other, each for so many runs; (version, its runs so far, finding) as found."""
    rng, watch, first = random.Random(seed), Watch(), 0
    for version, (how, count) in enumerate(chain):
        if version:
            watch.swap(version, float(first))
        listed = list(runs(rng, version, how, first, count))
        first += count
        for at in range(0, count, batch):
            for finding in watch.add(listed[at : at + batch]):
                yield version, min(at + batch, count), finding
