"""Each agent for itself, and all together, over all versions.

Where a version comes every few hundred runs, the one that made an agent worse is gone before that shows. So the newest
outcomes of each agent are kept whatever version they are of, and each swap is asked about them: what came since against
what was before. A tool that is away for half an hour looks the same: a fall must also show without the worst three
quarters of an hour. Since the version that serves it goes back; since an earlier one it is told, for all agents gained
meanwhile. A fall of all together goes back to before the version that it began with.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

import msgspec

from actors.monitoring.history import History
from actors.monitoring.monitor import SEVERITY, Action, Finding, Monitor
from actors.monitoring.settings import ERROR_RATE, SAMPLE
from actors.monitoring.versions import (
    FIRST_LOOK,
    LEAST,
    OUTCOME_FALL,
    Comparison,
    Spend,
    fall,
    success,
    thinned_runs,
    weighed,
)
from actors.statistics.change_tests import Looks, planned_looks
from actors.statistics.parties import FairWindow, binds
from actors.tool_results.runs import RunSummary

AGENTS = 16
"""Agents whose outcomes are kept; the one with the fewest, the longest ago, goes first."""
_SIDE = 96
"""Outcomes of an agent on either side of a swap: a fall from 90 to 60 % is sure from them."""
_SWAPS = 12
"""Swaps that are asked about: the newest, and of those before it such as are a quarter of an hour and a first look's
outcomes apart. Where versions come every two minutes a dozen of them is less than an outage, and where each has two
outcomes a dozen of them says nothing."""
_GROWTH = 1.7
"""Between two looks: few, for an agent's share of the error is small."""
_QUARTER = 900.0
_A_QUARTER = 8
"""Outcomes of an agent that are kept of a quarter of an hour; of each further party one, up to twice as many."""
_OUTAGE = 2700.0
"""Seconds without which a fall must still show."""
_ALL = ""
"""Name of the series of all agents together."""
_TOGETHER = 8
"""All are asked about once so many agents were heard of, for there are thousands of outcomes to go through."""
_STILL = 0.2
"""Of the error rate of a swap, the level at which it must. Found at the share of an agent already, it needs no share of
its own; but two outages in one evening look like a fall to a test that takes runs for independent."""


class _Quarter(msgspec.Struct):
    """What was kept of an agent in the present quarter of an hour."""

    number: int = -1
    parties: list[str] = []

    def admits(self, number: int, party: str) -> bool:
        """Whether an outcome of `party` is kept; it is counted then."""
        if number != self.number:
            self.number, self.parties = number, []
        held = len(self.parties)
        if held >= _A_QUARTER and (party in self.parties or held >= 2 * _A_QUARTER):
            return False
        self.parties.append(party)
        return True


class _Series(msgspec.Struct):
    """What was asked, and said, about one agent and swap."""

    looks: Looks = msgspec.field(default_factory=Looks)
    told: Action | None = None


class State(msgspec.Struct):
    """What the monitor remembers."""

    runs: dict[str, list[RunSummary]] = {}
    """Of each agent the newest runs with an outcome, in the order in which the outcomes came."""
    quarters: dict[str, _Quarter] = {}
    swaps: dict[int, "_Swap"] = {}
    """By the version that began to serve, the oldest first."""


class _Swap(msgspec.Struct):
    """A version that began to serve."""

    previous: int
    since: float
    """Unix seconds."""
    series: dict[str, _Series] = {}
    """By agent."""


class AgentOutcomes(Monitor):
    """Success of each agent, since each of the last swaps against before it."""

    name = "agents"

    def __init__(self, action: Action) -> None:
        self._action: Action = action
        self._fresh: list[RunSummary] = []
        """Runs whose outcome came since the last look."""
        self._unasked = 0
        """Agents heard of since all together were asked about."""
        self._begin(State())

    def _begin(self, state: State) -> None:
        self._runs = {agent: _window(runs) for agent, runs in state.runs.items()}
        self._quarters, self._swaps = state.quarters, state.swaps

    def concluded(self, run: RunSummary) -> None:
        self._fresh.append(run)

    def forget(self, agent: str) -> None:
        """The world of `agent` is another: what was before is no measure of what comes."""
        self._runs.pop(agent, None)
        for known in self._swaps.values():
            known.series.pop(agent, None)

    def look(self, history: History, now: float) -> list[Finding]:
        self._swapped(history)
        heard = {run.agent for run in self._fresh if self._kept(run, now)}
        self._fresh.clear()
        found: list[Finding] = []
        self._unasked += len(heard)
        if self._unasked >= _TOGETHER:
            self._unasked = 0
            everybody = [one for agent in self._runs for one in self._told(agent, history)]
            found = self._asked_each(_ALL, sorted(everybody, key=lambda one: one[0].ended), history)
        if len(self._runs) < 2:
            return found  # the only agent's runs are all runs
        for agent in sorted(heard & self._runs.keys()):
            if any(finding.action == "rollback" for finding in found):
                break  # of a version that was ordered back nothing more is said
            found += self._asked_each(agent, self._told(agent, history), history)
        return found

    def _told(self, agent: str, history: History) -> list[tuple[RunSummary, int]]:
        """Runs of `agent`, each with its version; none of one that was ordered back."""
        runs = [(run, version) for run in self._runs[agent] if (version := history.version(run)) is not None]
        return [(run, version) for run, version in runs if version not in history.condemned]

    def _asked_each(self, agent: str, runs: Sequence[tuple[RunSummary, int]], history: History) -> list[Finding]:
        """What is to be said of `agent` since each swap, the newest first: it may be gone back from."""
        found: list[Finding] = []
        versions = sorted(its for _, its in runs)
        for version, swap in reversed(list(self._swaps.items())):
            looks = swap.series.setdefault(agent, _Series()).looks
            after = len(versions) - bisect_left(versions, version)
            if version in history.condemned or not self._due(looks, agent, after):
                continue
            finding = self._asked(agent, version, runs, history)
            if finding is not None:
                found.append(finding)
                if finding.action == "rollback":
                    break
        return found

    def _swapped(self, history: History) -> None:
        swap = history.swap
        if swap is not None and swap.version > swap.previous and swap.version not in self._swaps:
            *_, last, newest = (-1, -1, *self._swaps)
            if last >= 0 and not self._apart(last, newest, history):
                del self._swaps[newest]
            self._swaps[swap.version] = _Swap(swap.previous, swap.since)
            while len(self._swaps) > _SWAPS:
                del self._swaps[next(iter(self._swaps))]

    def _apart(self, first: int, second: int, history: History) -> bool:
        """Whether enough lies between two swaps to ask about both."""
        if self._swaps[second].since - self._swaps[first].since < _QUARTER:
            return False
        kept = (run for runs in self._runs.values() for run in runs)
        between = [run for run in kept if (its := history.version(run)) is not None and first <= its < second]
        return len(thinned_runs(between, bound=binds(history.parties()))) >= FIRST_LOOK

    def _kept(self, run: RunSummary, now: float) -> bool:
        if not self._quarters.setdefault(run.agent, _Quarter()).admits(int(now // _QUARTER), run.party):
            return False
        self._runs.setdefault(run.agent, _window(())).append(run)
        if len(self._runs) > AGENTS:
            # One that is gone for good makes room before one that was heard of today.
            others = (agent for agent in self._runs if agent != run.agent)
            self.forget(
                min(others, key=lambda agent: (len(self._runs[agent]), max(r.ended for r in self._runs[agent])))
            )
        self._quarters = {agent: self._quarters[agent] for agent in self._runs}
        return True

    def _asked(
        self, agent: str, version: int, runs: Sequence[tuple[RunSummary, int]], history: History
    ) -> Finding | None:
        """What is to be said of `agent` since `version` began to serve; `runs` of it, each with its version."""
        side = self._side(agent)
        bound = binds(run.party for run, _ in runs)
        after, before = (
            thinned_runs([run for run, its in runs if (its >= version) is since], bound=bound)[-side:]
            for since in (True, False)
        )
        series = self._swaps[version].series[agent]
        looks = series.looks
        # A party that reports everything must not use up the looks: they go by what counts of its word.
        if len(before) < LEAST or not self._due(looks, agent, len(after)):
            return None
        looks.take(len(after), _GROWTH)
        if len(after) < side:
            looks.next = min(looks.next, side)  # the last look is at all that are kept
        planned = planned_looks(FIRST_LOOK, _GROWTH, side) + 1
        found = weighed(after, before, lambda total: looks.spend(total, planned), self._fell, success, reported=True)
        if not found.comparison.found or not self._still(_without_worst(after), before):
            return None
        # A party that hides a fall is set aside; one that makes it up is found by leaving it out.
        own = binds(run.party for run in (*after, *before))
        parties = self._single(after, before) if found.parties or (binds(history.parties()) and not own) else ()
        serves = history.swap is not None and history.swap.version == version
        action: Action = "tell" if parties or (agent and not serves) else self._action
        if series.told is not None and SEVERITY[series.told] >= SEVERITY[action]:
            return None
        series.told = action
        if agent and not serves:
            # What it does now is what it is compared with from here on.
            self._runs[agent] = _window([run for run, its in runs if its >= version])
        return self._finding(agent, version, history, found.comparison, (len(after), len(before)), action, parties)

    def _side(self, agent: str) -> int:
        """Outcomes on either side of a swap that are compared."""
        return _SIDE if agent else SAMPLE

    def _due(self, looks: Looks, agent: str, outcomes: int) -> bool:
        return looks.due(min(self._side(agent), outcomes), FIRST_LOOK)

    def _fell(self, after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Comparison:
        # By the most agents that are kept apart: how many there are now says nothing of how many come.
        level = spend(ERROR_RATE / (AGENTS + 1))
        return fall(after, before, level, OUTCOME_FALL)

    def _still(self, after: Sequence[RunSummary], before: Sequence[RunSummary]) -> bool:
        """Whether what was found shows in a part of it, too."""
        level = _STILL * ERROR_RATE
        return weighed(after, before, lambda _: level, self._fell, success, reported=True).comparison.found

    def _single(self, after: Sequence[RunSummary], before: Sequence[RunSummary]) -> tuple[str, ...]:
        """The party without which it does not show; empty if two show it."""

        def shows(party: str) -> bool:
            now, was = ([run for run in side if run.party != party] for side in (after, before))
            return fall(now, was, _STILL * ERROR_RATE, OUTCOME_FALL).found

        return tuple(party for party in sorted({run.party for run in after}) if not shows(party))[:1]

    def _finding(
        self, agent: str, version: int, history: History, comparison: Comparison, runs: tuple[int, int],
        action: Action, parties: tuple[str, ...],
    ) -> Finding:  # fmt: skip
        swap = history.swap
        assert swap is not None
        serves = swap.version == version
        if parties:
            note = f"; not acted on, for it is not shown without {' and '.join(parties)}"
        elif not serves:
            note = f"; version {swap.version}, which serves, has not mended it"
        else:
            note = ""
        details = {"engine": swap.engine, "version": str(version)}
        if agent:
            details |= {"agent": agent} | ({"to": str(swap.previous)} if serves else {})
        else:
            details |= {
                "version": str(swap.version),
                "since": str(version),
                "to": str(self._swaps[version].previous),
            }
        return Finding(
            cause="outcomes",
            key=(swap.engine, version, agent),
            action=action,
            reason=(
                f"{f'agent {agent}' if agent else 'all agents'}: {comparison.text} since version {version} "
                f"({runs[0]} runs, {runs[1]} before){note}"
            ),
            details={
                **details,
                **({"party": parties[0]} if parties else {}),
                **{name: f"{value:.4g}" for name, value in comparison.values.items()},
            },
        )

    def readings(self) -> Mapping[str, float]:
        return {"agents": len(self._runs)} if self._runs else {}

    def save(self) -> bytes:
        runs = {agent: list(window) for agent, window in self._runs.items()}
        return msgspec.msgpack.encode(State(runs, self._quarters, self._swaps))

    def restore(self, data: bytes) -> None:
        self._begin(msgspec.msgpack.decode(data, type=State))


def _window(runs: Collection[RunSummary]) -> FairWindow[RunSummary]:
    return FairWindow(2 * _SIDE, lambda run: run.party, runs)


def _without_worst(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """`runs` but for those of the stretch of `_OUTAGE` seconds in which most failed."""
    listed = sorted(runs, key=lambda run: run.ended)
    failed = [0]
    for run in listed:
        failed.append(failed[-1] + (not run.succeeded))
    best, end = (-1, 0, 0), 0
    for begin, run in enumerate(listed):
        while end < len(listed) and listed[end].ended <= run.ended + _OUTAGE:
            end += 1
        best = max(best, (failed[end] - failed[begin], begin, end))
    return listed[: best[1]] + listed[best[2] :]
