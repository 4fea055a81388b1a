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
TRAINING, READY, UNREPORTED = "are being trained on", "wait for an update", "have no outcome yet"
"""What comes of a run that is under way: in the outstanding order, in none yet, and without an outcome."""
_UNLABELLED = ("unknown version", "unknown_version")
"""What keeps a run out that could be trained on as far as its tokens go."""
_LABEL = 100
_TOOLS = 3


class AgentView(msgspec.Struct, kw_only=True):
    """One agent."""

    agent: str
    label: str = ""
    """For people."""
    seen: float = 0.0
    """Unix seconds of its last run's end."""
    runs: int = 0
    reported: int = 0
    guessed: int = 0
    """Runs that were ordered with a provisional outcome, and that nobody has reported yet."""
    came: dict[str, int] = msgspec.field(default_factory=Counter[str])
    """All its runs, by what came of them: `LEARNED`, why nothing was learned, or what they wait for."""
    dropped: dict[str, int] = msgspec.field(default_factory=Counter[str])
    """Of those, before an order, by reason."""
    no_gradient: dict[str, int] = msgspec.field(default_factory=Counter[str])
    """Of those, ordered in vain, by reason."""
    calls: int = 0
    unfit: dict[str, int] = msgspec.field(default_factory=Counter[str])
    """Calls that cannot be trained on, by reason; the others of their runs train."""

    @property
    def learned(self) -> int:
        """Runs that changed the weights."""
        return self.came.get(LEARNED, 0)


def agents(connection: Connection, since: float) -> list[AgentView]:
    """Those whose runs ended at `since` (unix seconds) or later, the busiest first."""
    kinds = (Runs.agent, Runs.came, Runs.unfit_why, Runs.batch_id != "", Runs.outcome.is_not(None))
    sums = func.count(), func.sum(Runs.calls), func.sum(Runs.unfit), func.max(Runs.label), func.max(Runs.ended)
    views: dict[str, AgentView] = {}
    wanted = select(*kinds, *sums).where(Runs.ended >= since, Runs.agent != "").group_by(*kinds)
    rows: Any = connection.execute(wanted)
    for name, came, unfit_why, ordered, reported, runs, calls, unfit, label, seen in rows:
        view = views.setdefault(name, AgentView(agent=name))
        why = unfit_why if came == "untrainable" and unfit_why else came
        view.came[why or (TRAINING if ordered else READY if reported else UNREPORTED)] += runs
        if why and why != LEARNED:
            (view.no_gradient if ordered else view.dropped)[why] += runs
        view.runs += runs
        view.reported += runs if reported else 0
        view.guessed += runs if ordered and not reported else 0
        view.calls += calls
        if why in _UNLABELLED:
            view.unfit[why] += calls
        elif unfit:
            view.unfit[unfit_why] += unfit
        view.label, view.seen = max(view.label, label), max(view.seen, seen)
    return sorted(views.values(), key=lambda view: (-view.runs, view.agent))


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
