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

from actors.monitoring.comparison import (
    FIRST_LOOK,
    LEAST,
    Comparison,
    Spend,
    fall,
    reported_alike,
    success,
    thinned_runs,
    weighed,
)
from actors.monitoring.history import History, Swap
from actors.monitoring.monitor import SEVERITY, Action, Finding, Monitor
from actors.monitoring.settings import ERROR_RATE, SAMPLE
from actors.monitoring.versions import OUTCOME_FALL
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
"""Outcomes of an agent that are kept of those that came in a quarter of an hour; of each further party one, up to twice
as many."""
_OUTAGE = 2700.0
"""Seconds without which a fall must still show."""
_ALL = ""
"""Name of the series of all agents together."""
_TOGETHER = 8
"""All are asked about once so many agents were heard of, for there are thousands of outcomes to go through."""
_STILL = 0.2
"""Of the error rate of a swap, the level at which it must. Found at the share of an agent already, it needs no share of
its own; but two outages in one evening look like a fall to a test that takes runs for independent."""

Told = Sequence[tuple[RunSummary, int]]
"""Runs with an outcome, each with its version."""


class _Series(msgspec.Struct):
    """What was asked, and said, about one agent and swap."""

    looks: Looks = msgspec.field(default_factory=Looks)
    told: Action | None = None


class _Asked(msgspec.Struct):
    """A swap that is asked about."""

    swap: Swap
    series: dict[str, _Series] = {}
    """By agent."""


class State(msgspec.Struct):
    """What the monitor remembers."""

    runs: dict[str, list[RunSummary]] = {}
    """Of each agent the newest runs with an outcome, in the order in which the outcomes came."""
    swaps: list[_Asked] = []
    """The oldest first."""
    quarter: int = -1
    came: dict[str, list[str]] = {}
    """By agent the party of each outcome that was kept of the present quarter of an hour."""


class AgentOutcomes(Monitor):
    """Success of each agent, since each of the last swaps against before it."""

    name = "agents"

    def __init__(self, action: Action) -> None:
        self._action: Action = action
        self._unasked = 0
        """Agents heard of since all together were asked about."""
        self._begin(State())

    def _begin(self, state: State) -> None:
        self._state = state
        self._runs = {agent: _window(runs) for agent, runs in state.runs.items()}

    def forget(self, agent: str) -> None:
        """The world of `agent` is another: what was before is no measure of what comes."""
        self._runs.pop(agent, None)
        self._state.came.pop(agent, None)
        for asked in self._state.swaps:
            asked.series.pop(agent, None)

    def look(self, history: History, now: float) -> list[Finding]:
        self._swapped(history)
        heard = {run.agent for run in history.fresh.concluded if self._kept(run, now)}
        self._unasked += len(heard)
        # The only agent's runs are all runs.
        series = sorted(heard & self._runs.keys()) if len(self._runs) > 1 else []
        if self._unasked >= _TOGETHER:
            self._unasked = 0
            series = [_ALL, *series]
        found: list[Finding] = []
        for agent in series:
            found += self._asked_each(agent, history)
            if any(finding.action == "rollback" for finding in found):
                break  # of a version that was ordered back nothing more is said
        return found

    def _asked_each(self, agent: str, history: History) -> list[Finding]:
        """What is to be said of `agent` since each swap, the newest first: it may be gone back from."""
        listed = [run for one in ([agent] if agent else self._runs) for run in self._runs[one]]
        if not agent:
            listed.sort(key=lambda run: run.ended)
        told = [(run, its) for run in listed if (its := history.version(run)) is not None]
        told = [(run, its) for run, its in told if its not in history.condemned]
        versions, found = sorted(its for _, its in told), list[Finding]()
        for asked in reversed(self._state.swaps):
            version = asked.swap.version
            series = asked.series.setdefault(agent, _Series())
            after = min(_side(agent), len(versions) - bisect_left(versions, version))
            if version in history.condemned or not series.looks.due(after, FIRST_LOOK):
                continue
            finding = self._asked(asked.swap, series, agent, told, history)
            if finding is not None:
                found.append(finding)
                if finding.action == "rollback":
                    break
        return found

    def _swapped(self, history: History) -> None:
        swap, swaps = history.swap, self._state.swaps
        if swap is not None and swap.version > swap.previous and all(swap.version != one.swap.version for one in swaps):
            if len(swaps) > 1 and not self._apart(swaps[-2].swap, swaps[-1].swap, history):
                swaps.pop()
            swaps.append(_Asked(swap))
            del swaps[:-_SWAPS]

    def _apart(self, first: Swap, second: Swap, history: History) -> bool:
        """Whether enough lies between two swaps to ask about both."""
        if second.since - first.since < _QUARTER:
            return False
        kept = (run for runs in self._runs.values() for run in runs)
        between = [
            run for run in kept if (its := history.version(run)) is not None and first.version <= its < second.version
        ]
        return len(thinned_runs(between, bound=binds(history.parties()))) >= FIRST_LOOK

    def _kept(self, run: RunSummary, now: float) -> bool:
        state, quarter = self._state, int(now // _QUARTER)
        if quarter != state.quarter:
            state.quarter, state.came = quarter, {}
        came = state.came.setdefault(run.agent, [])
        if len(came) >= _A_QUARTER and (run.party in came or len(came) >= 2 * _A_QUARTER):
            return False
        came.append(run.party)
        self._runs.setdefault(run.agent, _window(())).append(run)
        if len(self._runs) > AGENTS:
            # One that is gone for good makes room before one that was heard of today.
            others = (agent for agent in self._runs if agent != run.agent)
            self.forget(
                min(others, key=lambda agent: (len(self._runs[agent]), max(r.ended for r in self._runs[agent])))
            )
        return True

    def _asked(self, swap: Swap, series: _Series, agent: str, told: Told, history: History) -> Finding | None:
        """What is to be said of `agent` since `swap`."""
        side, bound = _side(agent), binds(run.party for run, _ in told)
        after, before = (
            thinned_runs([run for run, its in told if (its >= swap.version) is since], bound=bound)[-side:]
            for since in (True, False)
        )
        looks = series.looks
        # A party that reports everything must not use up the looks: they go by what counts of its word.
        if len(before) < LEAST or not looks.due(min(side, len(after)), FIRST_LOOK):
            return None
        looks.take(len(after), _GROWTH)
        if len(after) < side:
            looks.next = min(looks.next, side)  # the last look is at all that are kept
        planned = planned_looks(FIRST_LOOK, _GROWTH, side) + 1
        found = weighed(after, before, lambda total: looks.spend(total, planned), _fell, success, reported_alike)
        if not found.found or not _still(_without_worst(after), before):
            return None
        # A party that hides a fall is set aside; one that makes it up is found by leaving it out.
        own = binds(run.party for run in (*after, *before))
        parties = _single(after, before) if found.parties or (binds(history.parties()) and not own) else ()
        serves = history.swap is not None and history.swap.version == swap.version
        action: Action = "tell" if parties or (agent and not serves) else self._action
        if series.told is not None and SEVERITY[series.told] >= SEVERITY[action]:
            return None
        series.told = action
        if agent and not serves:
            # What it does now is what it is compared with from here on.
            self._runs[agent] = _window([run for run, its in told if its >= swap.version])
        found = msgspec.structs.replace(found, parties=parties)
        return _finding(agent, swap, history, found, (len(after), len(before)), action)

    def readings(self) -> Mapping[str, float]:
        return {"agents": len(self._runs)} if self._runs else {}

    def save(self) -> bytes:
        self._state.runs = {agent: list(window) for agent, window in self._runs.items()}
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._begin(msgspec.msgpack.decode(data, type=State))


def _finding(
    agent: str, swap: Swap, history: History, found: Comparison, runs: tuple[int, int], action: Action
) -> Finding:  # fmt: skip
    serving = history.swap or swap
    serves, version = serving.version == swap.version, str(swap.version)
    note = found.note or ("" if serves else f"; version {serving.version}, which serves, has not mended it")
    details = {"engine": serving.engine, "version": version, "agent": agent, "to": str(swap.previous)}
    if not agent:
        details |= {"version": str(serving.version), "since": version}
        del details["agent"]
    elif not serves:
        del details["to"]
    return Finding(
        cause="outcomes",
        key=(serving.engine, swap.version, agent),
        action=action,
        reason=(
            f"{f'agent {agent}' if agent else 'all agents'}: {found.text} since version {version} "
            f"({runs[0]} runs, {runs[1]} before){note}"
        ),
        details=details | found.details,
    )


def _side(agent: str) -> int:
    """Outcomes on either side of a swap that are compared."""
    return _SIDE if agent else SAMPLE


def _fell(after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Comparison:
    # By the most agents that are kept apart: how many there are now says nothing of how many come.
    return fall(after, before, spend(ERROR_RATE / (AGENTS + 1)), OUTCOME_FALL)


def _still(after: Sequence[RunSummary], before: Sequence[RunSummary]) -> bool:
    """Whether what was found shows in a part of it, too."""
    level = _STILL * ERROR_RATE
    return weighed(after, before, lambda _: level, _fell, success, reported_alike).found


def _single(after: Sequence[RunSummary], before: Sequence[RunSummary]) -> tuple[str, ...]:
    """The party without which it does not show; empty if two show it."""

    def shows(party: str) -> bool:
        now, was = ([run for run in side if run.party != party] for side in (after, before))
        return fall(now, was, _STILL * ERROR_RATE, OUTCOME_FALL).found

    return tuple(party for party in sorted({run.party for run in after}) if not shows(party))[:1]


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
