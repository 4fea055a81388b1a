"""What became of each agent's runs: learned from, or why not; one question to the books, by agent."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Trajectory
from actors.messages.agents import agent_of
from actors.store import tables as t
from actors.tool_results.runs import tool_names

SANDBOX = "sandbox"
"""Everything that was played there counts as one agent."""
LEARNED = "learned"
_OTHER = "other"
_REASONS = 32
"""Different reasons an agent; words of clients could be among them."""
_UNLABELLED = ("unknown version", "unknown_version")
"""What keeps a run out that could be trained on as far as its tokens go."""
_LABEL = 100
_TOOLS = 3


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """One agent; `learned`, `dropped`, `no_gradient`, and those under way are all its runs."""

    agent: str
    label: str
    """For people."""
    seen: float
    """Unix seconds of its last run's end."""
    runs: int
    reported: int
    """Runs with an outcome."""
    ordered: int
    """Runs that were in an order to train, the outstanding one included."""
    learned: int
    guessed: int
    """Runs that were ordered with a provisional outcome, and that nobody has reported yet."""
    unreported: int
    """Under way, without an outcome yet."""
    ready: int
    """Under way, with an outcome, and in no order yet."""
    training: int
    """In the outstanding order."""
    dropped: Mapping[str, int]
    """Before an order, by reason."""
    no_gradient: Mapping[str, int]
    """Ordered, by reason."""
    calls: int
    unfit: Mapping[str, int]
    """Calls that cannot be trained on, by reason; the others of their runs train."""

    @property
    def held_out(self) -> int:
        """Runs that are the gate's."""
        return self.dropped.get("held out", 0)

    @property
    def reasons(self) -> dict[str, int]:
        """Why runs taught nothing, the commonest first."""
        both = Counter(self.dropped) + Counter(self.no_gradient)
        return dict(sorted(both.items(), key=lambda item: (-item[1], item[0])))


def agents(connection: Connection, since: float) -> list[AgentView]:
    """Those whose runs ended at `since` (unix seconds) or later, the busiest first."""
    run = t.TrajectoryRow
    kinds = (run.agent, run.dropped, run.came, run.unfit_why, run.batch_id != "", run.outcome.is_not(None))
    sums = func.count(), func.sum(run.calls), func.sum(run.unfit), func.max(run.label), func.max(run.ended)
    found: dict[str, _Counts] = {}
    wanted = select(*kinds, *sums).where(run.ended >= since, run.agent != "").group_by(*kinds)
    rows: Any = connection.execute(wanted)
    for name, *what in rows:
        found.setdefault(name, _Counts()).add(*what)
    views = [counts.view(name) for name, counts in found.items()]
    return sorted(views, key=lambda view: (-view.runs, view.agent))


class _Counts:
    def __init__(self) -> None:
        self.label, self.seen, self.calls = "", 0.0, 0
        self.numbers: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.no_gradient: Counter[str] = Counter()
        self.unfit: Counter[str] = Counter()

    def add(
        self, dropped: str, came: str, unfit_why: str, ordered: bool, reported: bool, runs: int, calls: int, unfit: int,
        label: str, seen: float,
    ) -> None:  # fmt: skip
        numbers = self.numbers
        why = came or (unfit_why if dropped == "untrainable" and unfit_why else dropped)
        if came == LEARNED:
            numbers["learned"] += runs
        elif why:
            (self.no_gradient if came else self.dropped)[why] += runs
        else:
            numbers["training" if ordered else "ready" if reported else "unreported"] += runs
        numbers["runs"] += runs
        numbers["reported"] += runs if reported else 0
        numbers["ordered"] += runs if ordered else 0
        numbers["guessed"] += runs if ordered and not reported else 0
        self.calls += calls
        if why in _UNLABELLED:
            self.unfit[why] += calls
        elif unfit:
            self.unfit[unfit_why] += unfit
        self.label, self.seen = max(self.label, label), max(self.seen, seen)

    def view(self, name: str) -> AgentView:
        counted = {
            one: self.numbers[one]
            for one in ("runs", "reported", "ordered", "learned", "guessed", "unreported", "ready", "training")
        }
        return AgentView(
            agent=name, label=self.label, seen=self.seen, dropped=_bounded(self.dropped), calls=self.calls,
            no_gradient=_bounded(self.no_gradient), unfit=_bounded(self.unfit), **counted,
        )  # fmt: skip


def _bounded(reasons: Counter[str]) -> dict[str, int]:
    ranked = reasons.most_common()
    rest = sum(number for _, number in ranked[_REASONS:])
    return dict(ranked[:_REASONS]) | ({_OTHER: rest} if rest else {})


def columns(run: Trajectory) -> dict[str, Any]:
    """What `agents` asks for, of a run that closes. Probes are no agent's."""
    unfit = Counter(reason for step in run.steps if (reason := step.why_not or ("" if run.trainable else run.why_not)))
    name = "" if run.source == "probe" else SANDBOX if run.source == "sandbox" else agent_of(run)
    return {
        "agent": name, "label": label_of(run) if name else "", "came": "", "calls": len(run.steps),
        "unfit": unfit.total(), "unfit_why": unfit.most_common(1)[0][0] if unfit else "",
    }  # fmt: skip


def label_of(run: Trajectory) -> str:
    """For people: tenant, role, and its first tools."""
    if run.source == "sandbox":
        return "the sandbox"
    role = run.steps[0].role.partition("#")[0] if run.steps else ""
    names = tool_names(run.tools)
    tools = ", ".join(names[:_TOOLS]) + (" ..." if len(names) > _TOOLS else "")
    text = ", ".join(part for part in (run.tenant, role, f"with {tools}" if tools else "") if part)
    # Agents and tenants choose these words.
    return "".join(sign if sign.isprintable() else " " for sign in text)[:_LABEL]
