"""How long is a bad version on trial at one of three engines, and how long an equal one?

    python -m tests.benchmarks.canary --seeds 20 --json build/canary.json
    python -m tests.benchmarks.canary --equal 400

The real watch over a trial, on virtual time and a store in memory; the tap's draw is by the share that the watch says.
Ten agents with a key each ask in free words. Failures are reported three times as often as successes, half of the
reports come four hours late on average (exponential). A trial that goes on after 30 days or 40,000 runs is given up.

`--equal`: versions that are as good, in weather that should fool a test whose sides are not of one time: traffic and
success have days and nights (96 and 60 %), an agent's tools are away for a quarter of an hour twice a day.
"""

import asyncio
import heapq
import itertools
import math
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from actors.deployment.canary import CanarySettings, CanaryWatch
from actors.messages import Step, ToolCall, Trajectory
from actors.ports.store import OutcomeRow
from actors.versions.desired_state import Goal, ServingTrial
from tests.benchmarks import report
from tests.simulation import words
from tests.support.fakes import FakeStore

AGENTS = 10
SKEW = 3.0
"""Times as often as successes are failures reported."""
LATE, LATE_SECONDS = 0.5, 4 * 3600.0
PARTS = {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}
DAY = 86_400.0
FEW = 50
"""Outcomes elsewhere up to which each may be one that a look waited for."""
RARELY = 3600.0
"""Seconds between two looks without news."""
GIVE_UP_DAYS, GIVE_UP_RUNS = 30.0, 40_000
RATES = (0.1, 1.0, 10.0, 100.0)
REPORTED = (1.0, 0.2, 0.05)
VERSIONS = {"90 to 10 %": (0.9, 0.1), "80 to 60 %": (0.8, 0.6), "equal, 90 %": (0.9, 0.9)}
"""(elsewhere, on trial)."""
TRIAL = ServingTrial(Goal(2, "", "", "verdict"), "a", 0.0, 1)
STABLE = 1


class Memory(FakeStore):
    """The store of one trial; it has no need to look through all runs."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.by_id: dict[str, Trajectory] = {}

    def add(self, run: Trajectory) -> None:
        self.order.append(run.id)
        self.by_id[run.id] = run

    def _rows(self, runs: Iterable[Trajectory]) -> list[OutcomeRow]:
        return [
            OutcomeRow(
                id=run.id, ended=run.ended, outcome=run.outcome, min_version=run.min_version,
                max_version=run.max_version, cluster="", goal="",
            )
            for run in runs
        ]  # fmt: skip

    async def recent_outcomes(self, *, limit: int = 100, **_: Any) -> list[OutcomeRow]:
        return self._rows(self.by_id[key] for key in self.order[-limit:][::-1])

    async def judged_outcomes(self, version: int, *, limit: int = 100, **_: Any) -> list[OutcomeRow]:
        newest = (self.by_id[key] for key in reversed(self.order))
        judged = (run for run in newest if run.min_version == version and run.outcome is not None)
        return self._rows(itertools.islice(judged, limit))

    async def closed_runs(self, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
        return [(self.by_id[key], "") for key in ids]


Ended = tuple[str, float, int]
"""How a trial ended, after how many hours and runs on trial."""


class Weather:
    """Chance of a success, and of a run, by time."""

    def __init__(self, rng: random.Random, *, rough: bool) -> None:
        self._rough, self._rng = rough, rng
        self._start = rng.random() * DAY if rough else 0.0
        self._away = {(agent, day): rng.random() * 0.49 for agent in range(AGENTS) for day in range(61)}

    def success(self, at: float, agent: int, usual: float) -> float:
        if not self._rough:
            return usual
        half, place = divmod((self._start + at) / DAY, 0.5)
        away = self._away.get((agent, int(half)), 1.0)
        if away <= place < away + 900.0 / DAY:
            return 0.1
        return 0.78 + 0.18 * math.sin(2 * math.pi * (self._start + at) / DAY)

    def comes(self, at: float) -> bool:
        """Thinning: nearly nothing at night."""
        return not self._rough or self._rng.random() < 0.55 + 0.45 * math.sin(2 * math.pi * (self._start + at) / DAY)


async def trial(
    seed: int, rate: float, reported: float, elsewhere: float, here: float, *, rough: bool = False
) -> Ended:
    rng = random.Random(f"{seed}/{rate}/{reported}/{elsewhere}/{here}")
    store, weather = Memory(), Weather(rng, rough=rough)
    watch = CanaryWatch(CanarySettings(), store, parts=PARTS)
    told = min(1.0, reported / (elsewhere + (1.0 - elsewhere) * SKEW))
    reports: list[tuple[float, str, float]] = []
    now = looked = 0.0
    mine, others, news, growing = 0, 0, False, 1.0
    share = CanarySettings().share

    async def look(at: float) -> str:
        nonlocal looked, news, share, growing
        end, _ = await watch.verdict(TRIAL, STABLE, at, hold=False)
        looked, news, share, growing = at, False, watch.needs(TRIAL).share, watch.needs(TRIAL).grows
        return end

    while now < GIVE_UP_DAYS * DAY and len(store.order) < GIVE_UP_RUNS:
        now += rng.expovariate(rate / 60.0)
        if not weather.comes(now):
            continue
        while reports and reports[0][0] <= now:
            at, key, outcome = heapq.heappop(reports)
            run = store.by_id[key] = msgspec.structs.replace(store.by_id[key], outcome=outcome)
            others += run.min_version != TRIAL.goal.version
            news |= run.min_version == TRIAL.goal.version or others < FEW
            # The watch looks when there may be news for it: outcomes, time for a larger share, or the deadline.
            due = at - looked >= (30.0 if news else RARELY)
            if due and (end := await look(at)):
                return end, at / 3600.0, mine
        if growing and now >= growing and now - looked >= 30.0 and (end := await look(now)):
            return end, now / 3600.0, mine
        agent, on_trial = rng.randrange(AGENTS), rng.random() < share
        mine += on_trial
        success = rng.random() < weather.success(now, agent, here if on_trial else elsewhere)
        version = TRIAL.goal.version if on_trial else STABLE
        store.add(
            Trajectory(
                id=str(len(store.order)), tenant="t", caller=f"key-{agent}", goal=words.request(rng),
                steps=(Step(exchange_id="", role=f"agent{agent}#0", tool_calls=(ToolCall("find", "{}"),)),),
                started=now, ended=now + 5.0, min_version=version, max_version=version,
            )
        )  # fmt: skip
        if rng.random() < told * (1.0 if success else SKEW):
            late = rng.expovariate(1.0 / LATE_SECONDS) if rng.random() < LATE else 0.0
            heapq.heappush(reports, (now + 60.0 + late, store.order[-1], float(success)))
    return "", now / 3600.0, mine


def trials(seeds: int, rates: Sequence[float], figures: dict[str, float]) -> None:
    """Print how trials end, by rate and feedback."""
    for name, (elsewhere, here) in VERSIONS.items():
        wanted = "rollback" if here < elsewhere else "roll_on"
        rows: list[tuple[object, ...]] = []
        for rate, reported in itertools.product(rates, REPORTED):
            found = [asyncio.run(trial(seed, rate, reported, elsewhere, here)) for seed in range(seeds)]
            hours, runs = [one[1] for one in found if one[0] == wanted], [one[2] for one in found if one[0] == wanted]
            wrong = sum(how not in ("", wanted) for how, *_ in found)
            key = f"{name}, {rate:g}, {reported:g}"
            figures[f"{key}: ended"], figures[f"{key}: other"] = len(hours), wrong
            told = ["-", "-"]
            for at, (what, values) in enumerate({"hours": hours, "runs": runs}.items() if hours else ()):
                figures[f"{key}: {what}"], figures[f"{key}: most {what}"] = statistics.median(values), max(values)
                told[at] = f"{statistics.median(values):.1f}, {max(values):.1f}"
            rows.append((f"{rate:g}", f"{reported:.0%}", f"{len(hours)} of {seeds}", wrong, *told))
            print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)
        columns = ("runs a minute", "reported", wanted, "other end", "hours", "runs on trial")
        report.table(f"{name}: median, most", columns, rows)


def equal(count: int, figures: dict[str, float]) -> None:
    """Print how often an equal version is rolled back in rough weather."""
    rows: list[tuple[object, ...]] = []
    for rate, reported in ((0.3, 1.0), (1.0, 0.2), (3.0, 0.2)):
        found = [asyncio.run(trial(seed, rate, reported, 0.9, 0.9, rough=True)) for seed in range(count)]
        back = sum(how == "rollback" for how, *_ in found)
        hours = statistics.median(hours for _, hours, _ in found)
        figures[f"equal, {rate:g}, {reported:g}"] = back / count
        rows.append((f"{rate:g}", f"{reported:.0%}", f"{back} of {count}", f"{hours:.1f}"))
        print(rows[-1], file=sys.stderr, flush=True)
    stated = f"rolled back ({CanarySettings().error:.0%} stated)"
    report.table("As good", ("runs a minute", "reported", stated, "hours, median"), rows)


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=20, help="trials a row")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="runs a minute")
    parser.add_argument("--equal", type=int, default=0, metavar="TRIALS", help="only as good ones, rough weather")
    args = parser.parse_args()
    figures: dict[str, float] = {}
    if args.equal:
        equal(args.equal, figures)
    else:
        trials(args.seeds, args.rates, figures)
    report.write(args.json, "canary", figures, range(args.equal or args.seeds))


if __name__ == "__main__":
    main()
