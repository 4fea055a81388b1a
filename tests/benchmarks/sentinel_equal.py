"""How often does the sentinel speak up while nothing changes, steady and in bursts, beside the rate that it states?

    python -m tests.benchmarks.sentinel_equal --seeds 200 --json build/sentinel_equal.json

Ten agents share ten runs a minute, eight parties each use all of them. "In bursts" an agent's tool is away for a
quarter of an hour on average (exponential, half an hour at most) twice a day: four of five of its runs fail and two
thirds of its steps are answered with errors meanwhile; besides, success is six points lower by day than by night.
Counted are

* swaps between equal versions of which a version monitor says or does anything,
* swaps, one every 300 runs, of which something is said about one agent, and how soon one that fares worse is found,
* weeks of one agent in which errors or success are told as a drift,
* trials of a version that is as good, and ends as worse.
"""

import random
import statistics
from collections.abc import Iterator

import msgspec

from actors.deployment.arms import Arms, rate_of
from actors.deployment.canary import ERROR, CanarySettings, Looks, worse
from actors.monitoring import tools
from actors.monitoring.agent_outcomes import AgentOutcomes
from actors.monitoring.history import History, Swap
from actors.monitoring.settings import ERROR_RATE, SAMPLE, VERSIONS, WINDOW
from actors.monitoring.tools import ToolDrift
from actors.statistics.strata import sorted_out
from actors.tool_results.runs import RunSummary
from tests.benchmarks import report
from tests.support.behaviour import Behaviour, Watch, runs

AGENTS, PARTIES = 10, 8
GAP = 6.0
"""Seconds between two runs of all agents."""
DAY = 86_400.0
LENGTH, PLANTED = 300, 8
"""Runs of a version, and the version from which on one agent fares worse."""
SUCCESS, AWAY = 0.9, 0.18
ERRORS, AWAY_ERRORS = 0.03, 0.67
"""Of steps."""


class Weather:
    """When which agent's tool is away."""

    def __init__(self, rng: random.Random, days: float, bursts: bool) -> None:
        self._bursts = bursts
        self._away: list[list[tuple[float, float]]] = [[] for _ in range(AGENTS)]
        for away in self._away if bursts else ():
            at = rng.expovariate(2.0 / DAY)
            while at < days * DAY:
                away.append((at, at + min(1800.0, rng.expovariate(1.0 / 900.0))))
                at += rng.expovariate(2.0 / DAY)

    def away(self, agent: int, at: float) -> bool:
        return any(begin <= at < end for begin, end in self._away[agent])

    def success(self, agent: int, at: float) -> float:
        by_day = 0.03 * self._bursts * (1.0 if (at % DAY) < DAY / 2 else -1.0)
        return AWAY if self.away(agent, at) else SUCCESS - by_day


def run_of(run: RunSummary, agent: int, at: float, party: int, outcome: float | None) -> RunSummary:
    return msgspec.structs.replace(
        run, agent=f"t/a{agent}", party=f"p{party}", tools=f"d{agent}", started=at, ended=at + 1.0, outcome=outcome
    )


def swap(seed: int, bursts: bool) -> set[str]:
    """What is said of a swap between equal versions: 1,000 runs before it, 500 after."""
    rng, watch = random.Random(seed), Watch()
    weather, start = Weather(rng, 2.0, bursts), rng.random() * DAY

    def batch(version: int, first: int) -> list[RunSummary]:
        listed: list[RunSummary] = []
        for run in runs(rng, version, Behaviour(), first, 20):
            agent, at = rng.randrange(AGENTS), start + int(run.id[1:]) * GAP
            party = rng.randrange(PARTIES)
            listed.append(run_of(run, agent, at, party, float(rng.random() < weather.success(agent, at))))
        return listed

    watch.swap(0, start)
    for at in range(0, 1000, 20):
        watch.add(batch(0, at))
    watch.swap(1, start + 1000 * GAP)
    found = [finding for at in range(1000, 1500, 20) for finding in watch.add(batch(1, at))]
    return {finding.action for finding in found if finding.cause != "judge-score"}


def chain(
    seed: int, bursts: bool, reported: float, versions: int = 20, fallen: float | None = None
) -> list[tuple[str, int]]:
    """(agent, runs since the version that was planted) of what is said of agents, or of all, while `versions` serve.

    Args:
        fallen: success of the first agent from the eighth version on; None: it stays as it is.
    """
    rng = random.Random(f"chain/{seed}/{reported}")
    weather, start = Weather(rng, 2.0 + versions * LENGTH * GAP / DAY, bursts), rng.random() * DAY
    history, monitor = History(WINDOW, SAMPLE, VERSIONS), AgentOutcomes("rollback")
    told: list[tuple[str, int]] = []
    for version in range(versions):
        first = version * LENGTH
        history.swapped(Swap("serving", version, version - 1, start + first * GAP))
        for number, one in enumerate(runs(rng, version, Behaviour(), first, LENGTH), first):
            agent, at = rng.randrange(AGENTS), start + number * GAP
            worse_now = fallen is not None and agent == 0 and version >= PLANTED
            success = fallen if worse_now else weather.success(agent, at)
            solved = float(rng.random() < success) if rng.random() < reported else None
            run = run_of(one, agent, at, rng.randrange(PARTIES), solved)
            history.add(run)
            if run.outcome is None:
                continue
            for finding in monitor.look(history, at + 1.0):
                told.append((finding.details.get("agent", ""), number - PLANTED * LENGTH))
                if finding.action == "rollback":
                    history.condemn(version, int(finding.details.get("since", version)))
            history.looked()
    return told


def drifts(seed: int, bursts: bool, reported: float) -> bool:
    """Whether a drift is told of one agent within a week, a share of whose runs has an outcome."""
    rng, days = random.Random(f"{seed}/{reported}"), 7.0
    weather, monitor, history = Weather(rng, days, bursts), ToolDrift(), History(64, 16, 2)
    told, now = False, 0.0
    while now < days * DAY:
        now += rng.expovariate(1.0 / (GAP * AGENTS))
        share = AWAY_ERRORS if weather.away(0, now) else ERRORS
        steps = rng.randrange(2, 6)
        run = RunSummary(
            id=str(now), tenant="t", started=now - 1.0, ended=now, low=0, high=0, tools="d", steps=steps,
            errors=sum(rng.random() < share for _ in range(steps)), agent="t/a", party="p",
            outcome=float(rng.random() < weather.success(0, now)) if rng.random() < reported else None,
        )  # fmt: skip
        run.agent = monitor.known_as(run, ("find",))
        monitor.sighted(run, ("find",))
        history.add(run)
        told |= bool(list(monitor.look(history, now)))
        history.looked()
    return told


def outcomes(rng: random.Random, bursts: bool) -> Iterator[float]:
    """Of one kind of goal; in bursts, stretches of five in which four of five fail, one in forty."""
    left = 0
    while True:
        if bursts and not left and rng.random() < 1 / 200:
            left = 5
        yield float(rng.random() < (AWAY if left else SUCCESS))
        left = max(0, left - 1)


def trial(seed: int, bursts: bool) -> bool:
    """Whether a trial of 64 runs, after 384 of what served before, ends as worse though both are as good."""
    rng, settings, looks = random.Random(seed), CanarySettings(), Looks()
    streams = [outcomes(rng, bursts) for _ in range(AGENTS)]

    def run(mine: bool) -> tuple[tuple[str, str], bool, float]:
        agent = rng.randrange(AGENTS)
        return (f"a{agent}", "kind"), mine, 1.0 - next(streams[agent])

    known = [run(False) for _ in range(384)]
    for count in range(1, 65):
        known.append(run(True))
        if worse(Arms(rate_of(sorted_out(known))), looks, settings, last=count == 64):
            return True
    return False


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=200, help="runs a row")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the others follow it")
    parser.add_argument("--weeks", type=int, default=200, help="weeks of an agent a row")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    figures: dict[str, float] = {}
    rows: list[tuple[object, ...]] = []

    def row(what: str, weather: str, count: float, of: int, unit: str, stated: str) -> None:
        figures[f"{what}, {weather}"] = count / of
        rows.append((what, weather, f"{count:g} of {of} {unit}", stated))

    swaps, weeks = f"{ERROR_RATE:.0%} a swap", f"{tools.ERROR_RATE:.0%} an agent and week"
    few, watched = args.seeds // 5, range(args.first, args.first + args.weeks)
    for bursts in (False, True):
        weather = "bursts" if bursts else "steady"
        found = [swap(seed, bursts) for seed in seeds]
        row("versions, told", weather, sum(map(bool, found)), args.seeds, "swaps", swaps)
        row("versions, acted", weather, sum(bool(one - {"tell"}) for one in found), args.seeds, "swaps", swaps)
        for reported in (1.0, 0.2):
            said = sum(len(chain(seed, bursts, reported)) for seed in seeds[:few])
            row(f"agents, {reported:.0%} reported", weather, said, 20 * few, "swaps", swaps)
        for reported in (1.0, 0.05):
            told = sum(drifts(seed, bursts, reported) for seed in watched)
            row(f"tool drift, {reported:.0%} reported", weather, told, args.weeks, "weeks", weeks)
        ended = sum(trial(seed, bursts) for seed in seeds)
        row("trial", weather, ended, args.seeds, "trials", f"{ERROR:.0%} a trial")
    report.table("Nothing changed", ("who", "weather", "spoke up", "stated"), rows)
    rows = []
    for reported in (1.0, 0.2):
        later: list[int] = []
        for seed in range(args.first, args.first + 20):
            # Where a tenth of a fifth is heard of, it takes its time.
            said = chain(seed, True, reported, PLANTED + round(16 / reported), fallen=0.1)
            later += [after for agent, after in said if agent == "t/a0" and after >= 0][:1]
        middle = f"{statistics.median(later):,.0f}, {max(later):,}" if later else "-"
        figures[f"one agent of ten found, 10%, {reported:.0%}"] = len(later) / 20
        rows.append((f"{reported:.0%}", f"{len(later)} of 20", middle))
    report.table(
        "In bursts, one agent of ten falls from 90 to 10 % at one version",
        ("reported", "found", "runs of all agents: median, most"),
        rows,
    )
    report.write(args.json, "sentinel_equal", figures, seeds)


if __name__ == "__main__":
    main()
