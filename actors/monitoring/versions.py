"""The version that serves against the one before it, and against the oldest remembered: seven questions.

The first comparison finds what a swap did; the second a trend, and freezes at most, for going back by one version would
not undo it. No finding acts on one party's word (`actors.statistics.parties`): what holds only with the two that pull
hardest is told. Each agent for itself: `actors.monitoring.agent_outcomes`. `version_monitors` has the table.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from actors.monitoring.comparison import (
    FIRST_LOOK,
    GROWTH,
    LEAST,
    Compare,
    Comparison,
    Runs,
    Spend,
    Value,
    alike,
    fall,
    looked,
    reported_alike,
    strata,
    success,
)
from actors.monitoring.history import History, Watched
from actors.monitoring.monitor import SEVERITY, Action, Finding, Monitor
from actors.monitoring.settings import ERROR_RATE, SAMPLE, Actions
from actors.statistics import change_tests as seq
from actors.statistics.change_tests import Looks
from actors.tool_results.runs import RunSummary, all_reported

SERIES = 15
"""Series of looks at one swap that share its error rate: seven questions, two comparisons each; of success also the
runs of which all reports are in."""

OUTCOME_FALL = 0.1
"""Smallest fall of success that is acted on: a smaller one is not sure within `sample` runs."""
_RISE, _RATIO = 0.1, 1.5
"""Smallest rise of a share, and smallest growth of a median, that counts: what people would notice."""
_HONEST_ERROR = 0.05
"""Chance that a rise of the judge that the outcomes followed is taken for reward hacking, over all looks."""
_JUDGE_RISE = 0.05
"""Smallest rise of the judge's score (share of good among the steps that it labelled) that can be hacking."""
_PAYS = 0.05
"""A change of manners is only told while success is up by so much: then it pays. Invalid calls too, where that rise is
shown."""
_NEARLY_ALL = 0.95
"""Of the reports of the version before, so many were in after the time that runs are waited for."""
_TELLING = 48
"""Outcomes of the new version from which on it is known whether a change of manners pays: a success that is up by 18
points shows by then in 19 of 20 cases as one that is up by `_PAYS`."""
_SLACK = 60.0
"""Seconds that a report may be on its way to the sentinel."""
LEVEL = ERROR_RATE / SERIES
"""Error of one series, over all its looks."""


class Question(msgspec.Struct, frozen=True):
    """What is asked about the runs since a swap, beside those before it."""

    name: str
    """The cause of what is found."""
    action: Action
    value: Value
    """What is compared; None: the run says nothing, or not yet."""
    compare: Compare
    """One look; all runs have a value."""
    pays_at: float = 0.0
    """Only told while success is up, for it may be what makes for the success, or come of it: p-value of "success is
    not up" from which on it is. 0: whatever success does; 1: the means alone say so."""
    reported: bool = False
    """Compares runs with an outcome, however many without one lie between them."""
    manners: bool = False
    """Neither good nor bad by itself: only told until outcomes can say whether it pays. To learn is to change."""
    complete: bool = False
    """Asked once more of runs that nearly all reports are in of."""
    pulled: Value | None = None
    """What a party moves if it lies; the mean of it says who pulls hardest. None: `value`."""


class State(msgspec.Struct):
    """What a monitor remembers of the version that it watches."""

    version: int = -1
    looks: dict[str, Looks] = {}
    told: list[Action | Literal["drift"]] = []
    """What was done about it, each more than the one before."""
    readings: dict[str, float] = {}


class VersionMonitor(Monitor):
    """Asks one question: when to look, at what level, and what follows."""

    kept = State
    _state: State

    def __init__(self, question: Question) -> None:
        self.name, self._asks = question.name, question
        self._state = State()

    def look(self, history: History, now: float) -> list[Finding]:
        asks, state = self._asks, self._state
        watched = history.watched(LEAST, reported=asks.reported)
        if watched is None:
            return []
        if watched.swap.version != state.version:
            state = self._state = State(version=watched.swap.version)
        found: list[Finding] = []
        for against, sides in self._sides(history, watched, now).items():
            looks = state.looks.setdefault(against, Looks())
            if not looks.due(len(sides[0]), FIRST_LOOK):
                continue
            after, before = ([run for run in side if asks.value(run) is not None] for side in sides)
            where = reported_alike if asks.reported else alike
            comparison = looked(looks, after, before, asks.compare, asks.pulled or asks.value, where)
            if comparison is None:
                continue
            state.readings |= {f"{against}_{name}": value for name, value in comparison.values.items()}
            if comparison.found:
                finding = self._finding(history, watched, against, comparison, (len(after), len(before)))
                # Said once; but what was only told, or froze, may yet roll back.
                if all(SEVERITY[finding.action] > SEVERITY[said] for said in state.told):
                    state.told.append(finding.action)
                    found.append(finding)
        return found

    def _sides(self, history: History, watched: Watched, now: float) -> Mapping[str, tuple[Runs, Runs]]:
        """What is compared, by what with."""
        sides: dict[str, tuple[Runs, Runs]] = {
            "previous": (watched.after, watched.previous), "reference": (watched.after, watched.reference)
        }  # fmt: skip
        return sides | ({"complete": _complete(history, watched, now)} if self._asks.complete else {})

    def _finding(
        self, history: History, watched: Watched, against: str, found: Comparison, runs: tuple[int, int]
    ) -> Finding:
        asks, swap, trend = self._asks, watched.swap, against == "reference"
        versions = f"versions from {watched.oldest} on" if trend else f"version {swap.previous}"
        pays = asks.pays_at > 0.0 and self._pays(history, trend)
        early = not pays and asks.manners and self._early(history)
        note = "; success is up" if pays else "; too few outcomes to say whether it pays" if early else ""
        compared = f"{runs[0]} runs, {runs[1]} of {versions}"
        action: Action = "freeze" if trend and asks.action == "rollback" else asks.action
        return Finding(
            cause=asks.name,
            key=(swap.engine, swap.version),
            action="tell" if pays or early or found.parties else action,
            reason=f"{found.text} since version {swap.version} ({compared}){note}{found.note}",
            details={
                "engine": swap.engine,
                "version": str(swap.version),
                "to": str(swap.previous),
                "against": against,
                **found.details,
            },
        )

    def _pays(self, history: History, trend: bool) -> bool:
        watched = history.watched(LEAST, reported=True)
        if watched is None:
            return False
        runs = strata(watched.after, watched.reference if trend else watched.previous, success, reported_alike)
        after, was = seq.means(runs)
        return after - was >= _PAYS and seq.share_rise(runs) <= self._asks.pays_at

    def _early(self, history: History) -> bool:
        """Outcomes come, of the new version only few as yet, and there is another look to come."""
        runs, told = history.watched(LEAST), history.watched(LEAST, reported=True)
        if runs is None or told is None or len(told.previous) < LEAST:
            return False
        return len(told.after) < _TELLING and GROWTH * len(runs.after) <= SAMPLE


def _complete(history: History, watched: Watched, now: float) -> tuple[Runs, Runs]:
    """Runs that are so old that nearly all reports of them are in, however late these were; none where all are prompt.

    Where failures are told at once and successes after hours, reports that took equally long are all failures or all
    successes, and say nothing. A twentieth that comes later still moves success by less than `OUTCOME_FALL`.
    """
    late = sorted(run.late for run in watched.previous)[int(_NEARLY_ALL * (len(watched.previous) - 1)) :][:1]
    if late in ([], [0]):
        return [], []
    until = now - all_reported(late[0]) - _SLACK
    after, before = (
        [msgspec.structs.replace(run, late=0) for run in side if run.ended <= until] for side in history.drawn()
    )
    return after, before


def _fell(after: Runs, before: Runs, spend: Spend) -> Comparison:
    return fall(after, before, spend(LEVEL), OUTCOME_FALL)


def _share(text: str, value: Value) -> Compare:
    """Whether the share of runs that have it rose."""

    def compare(after: Runs, before: Runs, spend: Spend) -> Comparison:
        runs = strata(after, before, value)
        (now, was), p = seq.means(runs), seq.share_rise(runs)
        found = p <= spend(LEVEL) and now - was >= _RISE
        return Comparison(found, f"{text} {was:.0%} -> {now:.0%}", {"before": was, "after": now, "p": p})

    return compare


def _size(text: str, value: Value) -> Compare:
    """Whether the median grew, by ranks."""

    def compare(after: Runs, before: Runs, spend: Spend) -> Comparison:
        runs = strata(after, before, value)
        (now, was), p = seq.medians(runs), seq.size_rise(runs)
        found = p <= spend(LEVEL) and now >= _RATIO * was
        return Comparison(found, f"{text} {was:.3g} -> {now:.3g}", {"before": was, "after": now, "p": p})

    return compare


def _judged(run: RunSummary) -> float | None:
    return None if run.outcome is None else run.judged


def _gap(run: RunSummary) -> float | None:
    return None if run.judged is None or run.succeeded is None else run.judged - float(run.succeeded)


def _pleased(after: Runs, before: Runs, spend: Spend) -> Comparison:
    """The judge's score rises, and success does not follow: what is learned pleases the judge, not the user.

    Two things must be shown at once (an intersection-union test, Berger 1982): that the score rose, at the common error
    rate; and that it rose by more than success did on the same runs, at `_HONEST_ERROR`. So a version that is like the
    one before is accused with the first probability, one that is better and judged so with the second.

    A judge who counts good steps is pleased by more of them in runs that still fail: of a version that is half way to
    better its score rises by more than success. So while success is up it is only told.
    """
    scores, gaps, successes = (strata(after, before, of, reported_alike) for of in (_judged, _gap, success))
    (now, was), (solves, solved) = seq.means(scores), seq.means(successes)
    p, p_gap = seq.mean_rise(scores), seq.mean_rise(gaps)
    found = p <= spend(LEVEL) and p_gap <= spend(_HONEST_ERROR / 2) and now - was >= _JUDGE_RISE
    text = f"judge's score {was:.2f} -> {now:.2f} while success {solved:.0%} -> {solves:.0%}"
    values = {"before": was, "after": now, "success_before": solved, "success_after": solves, "p": p, "gap": p_gap}
    return Comparison(found, text, values)


def version_monitors(actions: Actions) -> list[VersionMonitor]:
    """All of them, those that roll back first."""

    def manner(name: str, text: str, value: Value, how: Callable[[str, Value], Compare]) -> Question:
        return Question(name, "freeze", value, how(text, value), pays_at=1.0, manners=True)

    def invalid(run: RunSummary) -> float:
        return float(run.invalid > 0)

    questions = (
        Question("outcomes", actions.success, success, _fell, reported=True, complete=True),
        Question("hacking", actions.judge_alone, _judged, _pleased, pays_at=1.0, reported=True, pulled=_gap),
        # A harm by itself, so success must be shown to be up before it is only told: a version that solves far more may
        # also try calls that the one before never got to.
        Question("validity", actions.success, invalid, _share("runs with an invalid tool call", invalid), pays_at=0.05),
        manner("questions", "runs that ask a question", lambda run: float(run.asks > 0), _share),
        manner("length", "length of a step", lambda run: run.length, _size),
        manner("steps", "steps a run", lambda run: float(run.steps), _size),
        manner("loops", "runs that go round in circles", lambda run: float(run.loops), _share),
    )
    return [VersionMonitor(question) for question in questions]
