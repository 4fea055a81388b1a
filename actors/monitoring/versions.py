"""The version that serves against the one before it, and against the oldest remembered: seven monitors.

The first comparison finds what a swap did; the second a trend, and freezes at most, for going back by one version would
not undo it. No finding acts on one party's word (`actors.statistics.parties`): what holds only with the two that pull
hardest is told. Each agent for itself: `actors.monitoring.agent_outcomes`. `version_monitors` has the table: success
(exact test), the judge alone is pleased (means), invalid calls, questions, circles (exact), length and steps (ranks).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal

import msgspec

from actors.monitoring.history import History, Watched
from actors.monitoring.monitor import SEVERITY, Action, Finding, Monitor
from actors.monitoring.settings import ERROR_RATE, SAMPLE, Actions
from actors.statistics import change_tests as seq
from actors.statistics.change_tests import Looks, Strata
from actors.statistics.parties import binds, set_aside, thinned
from actors.statistics.strata import sorted_out
from actors.tool_results.runs import RunSummary, all_reported

SERIES = 15
"""Series of looks at one swap that share its error rate: seven monitors, two comparisons each; of success also the runs
of which all reports are in."""

LEAST = 24
"""Runs that the side before the swap must have; with an outcome, where outcomes are compared."""
FIRST_LOOK, GROWTH = 12, 1.4
"""Runs after the swap at which a monitor looks for the first time, and again when there are so many times as many."""
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

Spend = Callable[[float], float]
"""From an error over all looks to the level of this one."""


class Comparison(msgspec.Struct, frozen=True):
    """What one look came to."""

    found: bool
    text: str
    """The numbers, for people."""
    values: dict[str, float]


class Weighed(msgspec.Struct, frozen=True):
    """What one look came to, and whose word it rests on."""

    comparison: Comparison
    parties: tuple[str, ...] = ()
    """Without whom it is not found, who pulls hardest first; empty: it is found without any one party."""


class State(msgspec.Struct):
    """What a monitor remembers of the version that it watches."""

    version: int = -1
    looks: dict[str, Looks] = {}
    told: list[Action | Literal["drift"]] = []
    """What was done about it, each more than the one before."""
    readings: dict[str, float] = {}


class VersionMonitor(Monitor):
    """What the seven have in common: when to look, at what level, and what follows."""

    kept = State
    _state: State

    def __init__(
        self, name: str, action: Action, value: Callable[[RunSummary], float | None],
        text: str = "", *, pays_at: float = 0.0, reported: bool = False, manners: bool = False, sizes: bool = False,
    ) -> None:  # fmt: skip
        """
        Args:
            value: what is compared; None: the run says nothing, or not yet.
            text: what it is, for people.
            pays_at: only told while success is up, for it may be what makes for the success, or come of it: p-value of
                "success is not up" from which on it is. 0: whatever success does; 1: the means alone say so.
            reported: compares runs with an outcome, however many without one lie between them.
            manners: neither good nor bad by itself: only told until outcomes can say whether it pays. To learn is to
                change.
            sizes: medians are compared, by ranks; else the shares of runs that have it.
        """
        self.name, self.value, self._text = name, value, text
        self._action: Action = action
        self._pays_at, self._reported, self._manners, self._sizes = pays_at, reported, manners, sizes
        self._planned = seq.planned_looks(FIRST_LOOK, GROWTH, SAMPLE)
        self._state = State()

    @property
    def _level(self) -> float:
        """Error of one of the series, over all its looks."""
        return ERROR_RATE / SERIES

    def compare(self, after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Comparison:
        """One look; all runs have a value."""
        runs = strata(after, before, self.value)
        now, was = seq.medians(runs) if self._sizes else seq.means(runs)
        p = seq.size_rise(runs) if self._sizes else seq.share_rise(runs)
        large = now >= _RATIO * was if self._sizes else now - was >= _RISE
        text = f"{was:.3g} -> {now:.3g}" if self._sizes else f"{was:.0%} -> {now:.0%}"
        found = p <= spend(self._level) and large
        return Comparison(found, f"{self._text} {text}", {"before": was, "after": now, "p": p})

    def look(self, history: History, now: float) -> list[Finding]:
        state = self._state
        watched = history.watched(LEAST, reported=self._reported)
        if watched is None:
            return []
        if watched.swap.version != state.version:
            state = self._state = State(version=watched.swap.version)
        sides = {"previous": watched.previous, "reference": watched.reference}
        due = [
            against for against in sides if state.looks.setdefault(against, Looks()).due(len(watched.after), FIRST_LOOK)
        ]
        after = [run for run in watched.after if self.value(run) is not None] if due else []
        found: list[Finding] = []
        for against in due:
            before = [run for run in sides[against] if self.value(run) is not None]
            looks, runs = state.looks[against], _count(after, before)
            if len(before) < LEAST or not looks.due(runs, FIRST_LOOK):
                continue
            looks.take(runs, GROWTH)
            weighed = self._weighed(after, before, lambda total, at=looks: at.spend(total, self._planned))
            state.readings |= {f"{against}_{name}": value for name, value in weighed.comparison.values.items()}
            if weighed.comparison.found:
                finding = self._finding(history, watched, against, weighed, (len(after), len(before)))
                # Said once; but what was only told, or froze, may yet roll back.
                if all(SEVERITY[finding.action] > SEVERITY[said] for said in state.told):
                    state.told.append(finding.action)
                    found.append(finding)
        return found

    def pulled(self, run: RunSummary) -> float | None:
        """What a party moves if it lies; the mean of it says who pulls hardest."""
        return self.value(run)

    def _weighed(self, after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Weighed:
        return weighed(after, before, spend, self.compare, self.pulled, reported=self._reported)

    def _finding(
        self, history: History, watched: Watched, against: str, weighed: Weighed, runs: tuple[int, int]
    ) -> Finding:
        swap, found, parties = watched.swap, weighed.comparison, weighed.parties
        trend = against == "reference"
        versions = f"versions from {watched.oldest} on" if trend else f"version {swap.previous}"
        pays = self._pays_at > 0.0 and self._pays(history, against)
        early = not pays and self._manners and self._early(history)
        note = "; success is up" if pays else "; too few outcomes to say whether it pays" if early else ""
        if parties:
            note = f"{note}; not acted on, for it is not shown without {' and '.join(parties)}"
        action: Action = (
            "tell" if pays or early or parties else "freeze" if trend and self._action == "rollback" else self._action
        )
        return Finding(
            cause=self.name,
            key=(swap.engine, swap.version),
            action=action,
            reason=f"{found.text} since version {swap.version} ({runs[0]} runs, {runs[1]} of {versions}){note}",
            details={
                "engine": swap.engine,
                "version": str(swap.version),
                "to": str(swap.previous),
                "against": against,
                **({"party": parties[0]} if parties else {}),
                **{name: f"{value:.4g}" for name, value in found.values.items()},
            },
        )

    def _pays(self, history: History, against: str) -> bool:
        watched = history.watched(LEAST, reported=True)
        if watched is None:
            return False
        before = watched.previous if against == "previous" else watched.reference
        runs = strata(watched.after, before, success, reported=True)
        after, was = seq.means(runs)
        return after - was >= _PAYS and seq.share_rise(runs) <= self._pays_at

    def _early(self, history: History) -> bool:
        """Outcomes come, of the new version only few as yet, and there is another look to come."""
        runs, told = history.watched(LEAST), history.watched(LEAST, reported=True)
        if runs is None or told is None or len(told.previous) < LEAST:
            return False
        return len(told.after) < _TELLING and GROWTH * len(runs.after) <= SAMPLE


def weighed(
    after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend,
    compare: Callable[[Sequence[RunSummary], Sequence[RunSummary], Spend], Comparison],
    pulled: Callable[[RunSummary], float | None], *, reported: bool,
) -> Weighed:  # fmt: skip
    """`compare` the two sides; where the party rule binds also without those who pull hardest."""
    if not _bound(after, before):
        return Weighed(compare(after, before, spend))

    def half(total: float) -> float:
        """Two comparisons share the error of the look."""
        return spend(total / 2)

    after, before = thinned_runs(after, bound=True), thinned_runs(before, bound=True)

    def pull(left_out: Collection[str]) -> float:
        now, was = seq.means(strata(_without(after, left_out), _without(before, left_out), pulled, reported=reported))
        return now - was

    aside = set_aside([run.party for run in (*after, *before)], pull)
    trimmed = compare(_without(after, aside), _without(before, aside), half)
    if trimmed.found:
        return Weighed(trimmed)

    def less(party: str) -> float:
        """How sure the comparison is without `party`: minus its p-value, lowest where most of it was that party's."""
        left = compare(_without(after, (party,)), _without(before, (party,)), lambda total: total)
        return -left.values["p"]

    whole = compare(after, before, half)
    return Weighed(whole, tuple(sorted(aside, key=less)) if whole.found else ())


def strata(
    after: Sequence[RunSummary],
    before: Sequence[RunSummary],
    value: Callable[[RunSummary], float | None],
    *,
    reported: bool = False,
) -> Strata:
    """The values of both sides, apart by agent, tool list, unit of length, neighbourhood and kind of goal; if they are
    of what was `reported`, by how late that was too.

    Where failures are reported at once and successes after hours, little but failures is known of a version that began
    to serve an hour ago, however good it is. Among reports that took equally long it is compared with its like.

    Users may begin to ask for something else on the day of a swap; what only one side was asked for says nothing of the
    weights. Kinds that are rare are one (`actors.statistics.strata`).
    """
    return sorted_out(
        (((run.tenant, run.agent, run.tools, run.tokens, run.late if reported else 0), run.near, run.kind), mine, one)
        for mine, runs in ((True, after), (False, before))
        for run in runs
        if (one := value(run)) is not None
    )


def _count(after: Sequence[RunSummary], before: Sequence[RunSummary]) -> int:
    """Runs that looks go by: a party that reports everything must not use them up before the others have spoken."""
    return len(thinned_runs(after, bound=_bound(after, before)))


def _bound(after: Sequence[RunSummary], before: Sequence[RunSummary]) -> bool:
    return binds(run.party for run in (*after, *before))


def _without(runs: Sequence[RunSummary], parties: Collection[str]) -> list[RunSummary]:
    return [run for run in runs if run.party not in parties]


def thinned_runs(runs: Sequence[RunSummary], *, bound: bool) -> list[RunSummary]:
    """`runs`, oldest first, no party above its cap."""
    newest_first = runs[::-1]
    return [newest_first[place] for place in thinned([run.party for run in newest_first], bound=bound)][::-1]


def success(run: RunSummary) -> float | None:
    """1 for a success, 0 for a failure."""
    return None if run.succeeded is None else float(run.succeeded)


def fall(after: Sequence[RunSummary], before: Sequence[RunSummary], level: float, least: float) -> Comparison:
    """Whether success fell by `least` at this level; all runs have an outcome."""
    sorted_runs = strata(after, before, success, reported=True)
    now, was = seq.means(sorted_runs)
    p = seq.share_fall(sorted_runs)
    found = p <= level and was - now >= least
    return Comparison(found, f"success {was:.0%} -> {now:.0%}", {"before": was, "after": now, "p": p})


class Outcomes(VersionMonitor):
    """Success falls."""

    def __init__(self, action: Action) -> None:
        super().__init__("outcomes", action, success, reported=True)

    def compare(self, after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Comparison:
        return fall(after, before, spend(self._level), OUTCOME_FALL)

    def look(self, history: History, now: float) -> list[Finding]:
        return super().look(history, now) or self._complete(history, now)

    def _complete(self, history: History, now: float) -> list[Finding]:
        """Runs that are so old that nearly all reports of them are in, however late these were.

        Where failures are told at once and successes after hours, reports that took equally long are all failures or
        all successes, and say nothing. A twentieth that comes later still moves success by less than `OUTCOME_FALL`.
        """
        state = self._state
        watched, (after, before) = history.watched(LEAST, reported=True), history.drawn()
        if watched is None or len(before) < LEAST or state.version != watched.swap.version:
            return []
        late = sorted(run.late for run in before)[int(_NEARLY_ALL * (len(before) - 1))]
        if not late:
            return []
        until = now - all_reported(late) - _SLACK
        looks = state.looks.setdefault("complete", Looks())
        after, before = ([run for run in side if run.ended <= until] for side in (after, before))
        runs = _count(after, before)
        if len(before) < LEAST or not looks.due(runs, FIRST_LOOK):
            return []
        after, before = ([msgspec.structs.replace(run, late=0) for run in side] for side in (after, before))
        looks.take(runs, GROWTH)
        weighed = self._weighed(after, before, lambda total: looks.spend(total, self._planned))
        if not weighed.comparison.found:
            return []
        finding = self._finding(history, watched, "previous", weighed, (len(after), len(before)))
        if not all(SEVERITY[finding.action] > SEVERITY[said] for said in state.told):
            return []
        state.told.append(finding.action)
        return [finding]


class Hacking(VersionMonitor):
    """The judge's score rises, and success does not follow: what is learned pleases the judge, not the user.

    Two things must be shown at once (an intersection-union test, Berger 1982): that the score rose, at the common error
    rate; and that it rose by more than success did on the same runs, at `_HONEST_ERROR`. So a version that is like the
    one before is accused with the first probability, one that is better and judged so with the second.

    A judge who counts good steps is pleased by more of them in runs that still fail: of a version that is half way to
    better its score rises by more than success. So while success is up it is only told.
    """

    def __init__(self, action: Action) -> None:
        super().__init__("hacking", action, _judged, pays_at=1.0, reported=True)

    def pulled(self, run: RunSummary) -> float | None:
        return None if run.judged is None or run.succeeded is None else run.judged - float(run.succeeded)

    def compare(self, after: Sequence[RunSummary], before: Sequence[RunSummary], spend: Spend) -> Comparison:
        scores, gaps, successes = (
            strata(after, before, of, reported=True) for of in (self.value, self.pulled, success)
        )
        (now, was), (solves, solved) = seq.means(scores), seq.means(successes)
        p, p_gap = seq.mean_rise(scores), seq.mean_rise(gaps)
        found = p <= spend(self._level) and p_gap <= spend(_HONEST_ERROR / 2) and now - was >= _JUDGE_RISE
        text = f"judge's score {was:.2f} -> {now:.2f} while success {solved:.0%} -> {solves:.0%}"
        values = {"before": was, "after": now, "success_before": solved, "success_after": solves, "p": p, "gap": p_gap}
        return Comparison(found, text, values)


def _judged(run: RunSummary) -> float | None:
    return None if run.outcome is None else run.judged


def version_monitors(actions: Actions) -> list[VersionMonitor]:
    """All of them, those that roll back first."""
    return [
        Outcomes(actions.success),
        Hacking(actions.judge_alone),
        # A harm by itself, so success must be shown to be up before it is only told: a version that solves far more may
        # also try calls that the one before never got to.
        VersionMonitor(
            "validity", actions.success, lambda run: float(run.invalid > 0),
            "runs with an invalid tool call", pays_at=0.05,
        ),
        VersionMonitor(
            "questions", "freeze", lambda run: float(run.asks > 0),
            "runs that ask a question", pays_at=1.0, manners=True,
        ),
        VersionMonitor(
            "length", "freeze", lambda run: run.length, "length of a step", pays_at=1.0,
            manners=True, sizes=True,
        ),
        VersionMonitor(
            "steps", "freeze", lambda run: float(run.steps), "steps a run", pays_at=1.0,
            manners=True, sizes=True,
        ),
        VersionMonitor(
            "loops", "freeze", lambda run: float(run.loops), "runs that go round in circles",
            pays_at=1.0, manners=True,
        ),
    ]  # fmt: skip
