"""What became of each agent's runs: learned from, or why not; one question to the books, by agent."""

from collections import Counter
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Trajectory
from actors.messages.agents import agent_of
from actors.store.tables import Runs
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


class AgentView(msgspec.Struct, kw_only=True):
    """One agent; `learned`, `dropped`, `no_gradient`, and those under way are all its runs."""

    agent: str
    label: str = ""
    """For people."""
    seen: float = 0.0
    """Unix seconds of its last run's end."""
    runs: int = 0
    reported: int = 0
    ordered: int = 0
    """Runs that were in an order to train, the outstanding one included."""
    learned: int = 0
    guessed: int = 0
    """Runs that were ordered with a provisional outcome, and that nobody has reported yet."""
    unreported: int = 0
    """Under way, without an outcome yet."""
    ready: int = 0
    """Under way, with an outcome, and in no order yet."""
    training: int = 0
    """In the outstanding order."""
    dropped: dict[str, int] = msgspec.field(default_factory=Counter[str])
    """Before an order, by reason."""
    no_gradient: dict[str, int] = msgspec.field(default_factory=Counter[str])
    """Ordered, by reason."""
    calls: int = 0
    unfit: dict[str, int] = msgspec.field(default_factory=Counter[str])
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
    kinds = (Runs.agent, Runs.dropped, Runs.came, Runs.unfit_why, Runs.batch_id != "", Runs.outcome.is_not(None))
    sums = func.count(), func.sum(Runs.calls), func.sum(Runs.unfit), func.max(Runs.label), func.max(Runs.ended)
    views: dict[str, AgentView] = {}
    wanted = select(*kinds, *sums).where(Runs.ended >= since, Runs.agent != "").group_by(*kinds)
    rows: Any = connection.execute(wanted)
    for name, dropped, came, unfit_why, ordered, reported, runs, calls, unfit, label, seen in rows:
        view = views.setdefault(name, AgentView(agent=name))
        why = came or (unfit_why if dropped == "untrainable" and unfit_why else dropped)
        if came == LEARNED:
            view.learned += runs
        elif why:
            (view.no_gradient if came else view.dropped)[why] += runs
        elif ordered:
            view.training += runs
        elif reported:
            view.ready += runs
        else:
            view.unreported += runs
        view.runs += runs
        view.reported += runs if reported else 0
        view.ordered += runs if ordered else 0
        view.guessed += runs if ordered and not reported else 0
        view.calls += calls
        if why in _UNLABELLED:
            view.unfit[why] += calls
        elif unfit:
            view.unfit[unfit_why] += unfit
        view.label, view.seen = max(view.label, label), max(view.seen, seen)
    for view in views.values():
        view.dropped, view.no_gradient, view.unfit = map(_bounded, (view.dropped, view.no_gradient, view.unfit))
    return sorted(views.values(), key=lambda view: (-view.runs, view.agent))


def _bounded(reasons: dict[str, int]) -> dict[str, int]:
    shown = dict(Counter(reasons).most_common(_REASONS))
    rest = sum(reasons.values()) - sum(shown.values())
    return shown | ({_OTHER: rest} if rest else {})


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
