"""What became of each agent's runs: seen, reported, ordered, learned from, and why the rest taught nothing.

A run is under way until it is dropped or its order is answered; then it is settled, and counted under one effect:
`learned`, or a reason. Runs under way are found in the store again after a restart, so only what is settled is saved.
Bounded; pure: time comes as an argument.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from actors.messages import Trajectory
from actors.messages.agents import agent_of
from actors.tool_results.runs import tool_names

MOST_AGENTS = 256
"""Those seen last are kept."""
PERIOD = 7 * 86_400.0
"""Seconds: figures are of this week and the one before, so that an agent that has changed is not judged by old runs."""
SANDBOX = "sandbox"
"""Everything that was played there counts as one agent."""
LEARNED = "learned"
OTHER = "other"
_REASONS = 32
"""Different reasons an agent; words of clients could be among them."""
_UNDER_WAY = 32_768
"""More than the curator's pool has room for."""
_SETTLED = 8192
"""Ids that are remembered: what was not committed is delivered again."""
_UNLABELLED = ("unknown version", "unknown_version")
"""What keeps a run out that could be trained on as far as its tokens go."""
_LABEL = 100
_TOOLS = 3


class Tally(msgspec.Struct, kw_only=True):
    """Runs that were settled since a time, Unix seconds."""

    since: float
    runs: int = 0
    reported: int = 0
    ordered: int = 0
    learned: int = 0
    dropped: dict[str, int] = {}
    """Before an order, by reason."""
    no_gradient: dict[str, int] = {}
    """Ordered, by reason."""
    calls: int = 0
    unfit: dict[str, int] = {}
    """Calls that may not be trained on, by reason."""


class Agent(msgspec.Struct, kw_only=True):
    """One agent, as it is saved."""

    label: str
    """For people."""
    seen: float
    """Unix seconds of its last run."""
    current: Tally
    before: Tally | None = None


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of one agent now; `learned`, `dropped`, `no_gradient` and those under way are all its runs."""

    agent: str
    label: str
    seen: float
    since: float
    """Unix seconds from when on it is counted."""
    runs: int
    reported: int
    """Runs with an outcome."""
    held_out: int
    """Runs that are the gate's."""
    ordered: int
    """Runs that were in an order to train, the outstanding one included."""
    learned: int
    unreported: int
    """Under way, without an outcome yet."""
    ready: int
    """Under way, with an outcome, and in no order yet."""
    training: int
    """In the outstanding order."""
    dropped: Mapping[str, int]
    no_gradient: Mapping[str, int]
    calls: int
    unfit: Mapping[str, int]
    """Calls that cannot be trained on, by reason; the others of their runs train."""

    @property
    def reasons(self) -> dict[str, int]:
        """Why settled runs taught nothing, the commonest first."""
        both = Counter(self.dropped) + Counter(self.no_gradient)
        return dict(sorted(both.items(), key=lambda item: (-item[1], item[0])))


class _Run(msgspec.Struct):
    agent: str
    calls: int
    why_not: str
    reported: bool
    unfit: dict[str, int]
    """As in `Tally`."""
    ordered: bool = False


class AgentLedger:
    """Runs under way by id, and what is settled by agent."""

    def __init__(self) -> None:
        self._agents: OrderedDict[str, Agent] = OrderedDict()
        self._under_way: OrderedDict[str, _Run] = OrderedDict()
        self._settled: OrderedDict[str, None] = OrderedDict()
        self.effects: Counter[str] = Counter()
        """Settled runs since this object was made, the sandbox's included: `learned`, or the reason."""

    def seen(self, run: Trajectory, now: float) -> bool:
        """A run, or its outcome, has come; whether the run is new. Probes are no agent's."""
        if run.source == "probe" or run.id in self._settled:
            return False
        name = SANDBOX if run.source == "sandbox" else agent_of(run)
        agent = self._agents.get(name)
        if agent is None:
            agent = self._agents[name] = Agent(label=label_of(run), seen=now, current=Tally(since=now))
        agent.seen = max(agent.seen, now)
        self._agents.move_to_end(name)
        while len(self._agents) > MOST_AGENTS:
            self._agents.popitem(last=False)
        known = self._under_way.get(run.id)
        if known is not None:
            known.reported = known.reported or run.outcome is not None
            return False
        why_not = "" if run.trainable else run.why_not
        self._under_way[run.id] = _Run(
            agent=name, calls=len(run.steps), why_not=why_not, reported=run.outcome is not None,
            unfit=Counter(reason for step in run.steps if (reason := step.why_not or why_not)),
        )  # fmt: skip
        while len(self._under_way) > _UNDER_WAY:
            self._settle(next(iter(self._under_way)), "forgotten", now)
        return True

    def dropped(self, trajectory_id: str, reason: str, now: float) -> None:
        """It will never be ordered."""
        run = self._under_way.get(trajectory_id)
        if run is not None:
            self._settle(trajectory_id, run.why_not if reason == "untrainable" and run.why_not else reason, now)

    def ordered(self, ids: Iterable[str]) -> None:
        """They are in the order that is out now."""
        for key in ids:
            if key in self._under_way:
                self._under_way[key].ordered = True

    def answered(self, ids: Iterable[str], no_gradient: Mapping[str, str], default: str, now: float) -> None:
        """The learner has answered their order.

        Args:
            no_gradient: why some taught nothing, by id.
            default: why the others did not; empty: they did.
        """
        for key in ids:
            self._settle(key, no_gradient.get(key) or default or LEARNED, now, ordered=True)

    def views(self) -> list[AgentView]:
        """All agents, the busiest first."""
        open_by: dict[str, list[_Run]] = {}
        for run in self._under_way.values():
            open_by.setdefault(run.agent, []).append(run)
        found = [_view(name, agent, open_by.get(name, [])) for name, agent in self._agents.items()]
        return sorted(found, key=lambda view: (-view.runs, view.agent))

    def save(self, now: float) -> dict[str, Agent]:
        """What `load` takes. Agents that are gone for two periods are forgotten, names and all."""
        at_work = {run.agent for run in self._under_way.values()}
        for name, agent in list(self._agents.items()):
            if now - agent.seen >= 2 * PERIOD and name not in at_work:
                del self._agents[name]
        return dict(self._agents)

    def load(self, agents: Mapping[str, Agent]) -> None:
        """Take over what was settled, as it was saved."""
        self._agents = OrderedDict(sorted(agents.items(), key=lambda item: item[1].seen))

    def forget_under_way(self) -> None:
        """They will be told again, from the store."""
        self._under_way.clear()

    def _settle(self, key: str, effect: str, now: float, *, ordered: bool = False) -> None:
        run = self._under_way.pop(key, None)
        if run is None:
            return
        self._settled[key] = None
        while len(self._settled) > _SETTLED:
            self._settled.popitem(last=False)
        self.effects[effect if effect in self.effects or len(self.effects) < 2 * _REASONS else OTHER] += 1
        agent = self._agents.get(run.agent)
        if agent is None:
            return
        if now - agent.current.since >= PERIOD:
            agent.before, agent.current = agent.current, Tally(since=now)
        tally = agent.current
        tally.runs += 1
        tally.reported += run.reported
        tally.ordered += ordered
        tally.calls += run.calls
        unfit = {effect: run.calls} if effect in _UNLABELLED else run.unfit
        for reason, number in unfit.items():
            _count(tally.unfit, reason, number)
        if effect == LEARNED:
            tally.learned += 1
        else:
            _count(tally.no_gradient if ordered else tally.dropped, effect, 1)


def _count(reasons: dict[str, int], reason: str, number: int) -> None:
    reason = reason if reason in reasons or len(reasons) < _REASONS else OTHER
    reasons[reason] = reasons.get(reason, 0) + number


def _view(name: str, agent: Agent, under_way: list[_Run]) -> AgentView:
    tallies = [agent.before, agent.current] if agent.before is not None else [agent.current]
    dropped: Counter[str] = Counter()
    no_gradient: Counter[str] = Counter()
    unfit: Counter[str] = Counter()
    for run in under_way:
        unfit.update(run.unfit)
    for tally in tallies:
        unfit.update(tally.unfit)
        dropped.update(tally.dropped)
        no_gradient.update(tally.no_gradient)
    training = sum(run.ordered for run in under_way)
    unreported = sum(not run.reported and not run.ordered for run in under_way)
    return AgentView(
        agent=name,
        label=agent.label,
        seen=agent.seen,
        since=tallies[0].since,
        runs=sum(tally.runs for tally in tallies) + len(under_way),
        reported=sum(tally.reported for tally in tallies) + sum(run.reported for run in under_way),
        held_out=dropped["held out"],
        ordered=sum(tally.ordered for tally in tallies) + training,
        learned=sum(tally.learned for tally in tallies),
        unreported=unreported,
        ready=len(under_way) - training - unreported,
        training=training,
        dropped=dict(dropped),
        no_gradient=dict(no_gradient),
        calls=sum(tally.calls for tally in tallies) + sum(run.calls for run in under_way),
        unfit=dict(unfit),
    )


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
