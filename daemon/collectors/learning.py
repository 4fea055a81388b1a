"""Is there learning, what does it wait for, and from which agents: put together from curator, gate and swapper.

The same answer goes to `/api/status`, and so to `evolved status`, dashboard and `evolved doctor`, and to Prometheus.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client.core import Metric

from actors.curation.curator import Curator
from actors.curation.remedies import calls_that_train, counted, tell
from actors.curation.waiting import Evidence, Facts, Learning, waiting
from actors.deployment.canary import FIRST_LOOK, CanarySettings
from actors.deployment.fleet import Fleet
from actors.gate.gatekeeper import Gatekeeper
from actors.store.agents import LEARNED, SANDBOX, UNREPORTED, AgentView
from daemon.figures import counter, gauge

STATES = ("moving", "waiting", "frozen")
_SHOWN = 64
"""Agents in the answer, the busiest."""
_REASONS = 32
"""Different reasons; words of clients could be among them."""


class LearningView:
    """Asks the actors."""

    def __init__(
        self,
        *,
        curator: Curator,
        gatekeeper: Gatekeeper,
        fleet: Callable[[], Fleet],
        canary: CanarySettings,
        halted: Callable[[], str],
        clock: Callable[[], float],
    ) -> None:
        """
        Args:
            canary: what a trial in production asks for.
            halted: the kill switch's reason, empty if it is off.
        """
        self._curator, self._gatekeeper, self._fleet, self._canary = curator, gatekeeper, fleet, canary
        self._halted, self._clock = halted, clock

    @property
    def effects(self) -> Counter[str]:
        """Runs since the start: `learned`, or why not."""
        return self._curator.effects

    @property
    def verdicts(self) -> Counter[str]:
        """What the gatekeeper counts."""
        return self._gatekeeper.counts

    @property
    def now(self) -> float:
        return self._clock()

    def learning(self) -> Learning | None:
        """What learning waits for; None while the books are being read."""
        return waiting(self._facts()) if self._curator.started else None

    def status(self) -> dict[str, Any]:
        """For `/api/status`; empty where it is not known."""
        learning, agents = self.learning(), self._curator.agents
        if learning is None:
            return {}
        freshness = self._curator.pool.freshness
        return {
            **msgspec.to_builtins(learning),
            "effect": _effect(agents),
            "agents": [_agent(view) for view in agents[:_SHOWN]],
            "agents_known": len(agents),
            "head": freshness.head,
            "serving": sorted(freshness.serving),
            "lead": freshness.lead,
            "provisional": {"on": self._curator.settings.provisional, **self._curator.provisional.status()},
        }

    def _facts(self) -> Facts:
        curator, fleet = self._curator, self._fleet()
        pool, settings, order, freshness = curator.pool, curator.settings, curator.outstanding, curator.pool.freshness
        views = [view for view in curator.agents if view.agent != SANDBOX]
        dropped: Counter[str] = Counter()
        for view in views:
            dropped.update(view.dropped)
        return Facts(
            now=self._clock(), heard=curator.heard, halted=self._halted(),
            ordered=None if order is None else order.created,
            ordered_runs=0 if order is None else len(order.trajectories),
            fresh=pool.fresh, fresh_needed=settings.production_per_batch, behind=pool.behind,
            unreported=sum(view.came.get(UNREPORTED, 0) for view in views),
            groups=pool.whole_groups, groups_needed=settings.groups_per_batch,
            last_run=max((view.seen for view in views), default=0.0),
            reported=sum(view.reported for view in views), dropped=dropped, head=freshness.head,
            serving=sorted(freshness.serving), lead=freshness.lead, verdict=self._verdict(), trial=self._trial(fleet),
            promoted=fleet.waiting,
        )  # fmt: skip

    def _verdict(self) -> Evidence | None:
        told, until = self._gatekeeper.waiting, self._gatekeeper.until
        if told is None:
            return None
        return Evidence(
            version=told.version, since=told.since, have=told.have, need=told.need, until=until, reason=told.reason,
        )  # fmt: skip

    def _trial(self, fleet: Fleet) -> Evidence | None:
        if fleet.canary is None:
            return None
        deadline = fleet.canary_since + self._canary.deadline_seconds
        # Once it has passed a few outcomes suffice, but those must come.
        passed = self._clock() >= deadline
        return Evidence(
            version=fleet.canary, since=fleet.canary_since, have=fleet.canary_judged,
            need=max(FIRST_LOOK, fleet.canary_due if len(fleet.engines) > 1 else 0)
            if passed
            else self._canary.runs,
            until=None if passed else deadline,
        )  # fmt: skip


def _agent(view: AgentView) -> dict[str, Any]:
    told, calls = tell(view), calls_that_train(view)
    return {
        "agent": view.agent,
        "label": view.label,
        "learning": view.learned > 0,
        "sentence": told.sentence,
        "remedy": told.remedy,
        "seen": view.seen,
        "runs": view.runs,
        "reported": view.reported,
        "learned": view.learned,
        "reasons": _missed(view.came),
        "calls": view.calls,
        "calls_that_train": view.calls - sum(view.unfit.values()),
        "calls_sentence": calls.sentence,
        "calls_remedy": calls.remedy,
    }


def _effect(agents: list[AgentView]) -> dict[str, Any]:
    """What production's runs came to; `learned` and the reasons are all of them."""
    views = [view for view in agents if view.agent != SANDBOX]
    came: Counter[str] = Counter()
    no_gradient: Counter[str] = Counter()
    for view in views:
        came.update(view.came)
        no_gradient.update(view.no_gradient)
    runs, learned, reasons = came.total(), came[LEARNED], _missed(came)
    return {
        "runs": runs,
        "reported": sum(view.reported for view in views),
        "provisional": sum(view.guessed for view in views),
        "learned": learned,
        "share": learned / runs if runs else None,
        "sentence": _share(learned, runs, reasons),
        "reasons": reasons,
        "no_gradient": dict(no_gradient.most_common()),
    }


def _missed(came: Mapping[str, int]) -> dict[str, int]:
    """What came of runs that nothing was learned from, the commonest first."""
    reasons = Counter({why: number for why, number in came.items() if why != LEARNED})
    shown = dict(reasons.most_common(_REASONS))
    rest = reasons.total() - sum(shown.values())
    return shown | ({"other": rest} if rest else {})


def _share(learned: int, runs: int, reasons: Mapping[str, int]) -> str:
    if not runs:
        return ""
    rest = f"; of the rest {counted(reasons, 5)}" if reasons else ""
    return f"{learned} of {runs} runs of production ({100 * learned / runs:.0f} %) changed the weights{rest}."


def learning_figures(view: LearningView) -> Iterator[Metric]:
    learning, now = view.learning(), view.now
    states: dict[str, float] = {}
    waits: dict[str, float] = {}
    if learning is not None:
        states = {name: float(name == learning.state) for name in STATES}
        waits = {learning.waits_for: max(0.0, now - learning.since)}
    yield gauge("evolved_learning_state", "1 for the state that learning is in, 0 for the others.", states, "state")
    yield gauge("evolved_learning_waits_seconds", "Since when learning waits, by what it waits for.", waits, "for")
    yield counter(
        "evolved_learning_runs", "Runs by their effect: learned, or why they taught nothing.",
        {LEARNED: 0, **view.effects}, "effect",
    )  # fmt: skip
    # A verdict's first one must be a rise as well.
    verdicts = {"promote": 0, "hold": 0, "reject": 0, **view.verdicts}
    yield counter("evolved_gatekeeper_records", "What the gatekeeper did.", verdicts, "what")
