"""Which agent a run is of, though prompts are edited and tools renamed: the same agent keeps what is known of it.

An agent's name (`agent_of`) holds a digest of system prompt and tools, so every edit makes a new name. Who comes with a
new name is one that is known if, within the tenant, it has the same tools, or calls itself the same and has at least
half of its tools in common. Two agents of one tenant with the same tools are one by that: their goals keep them apart.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from actors.kinds.neighbourhoods import Leader, Neighbourhoods
from actors.kinds.remembered import Remembered
from actors.messages import Trajectory, agent_of, called

AGENTS = 512
"""Agents with neighbourhoods; the one longest without a run goes first, of a tenant with too many before others'."""
_NAMES = 8192
"""Names that are known to be some agent's."""
_COMMON = 0.5
"""Share of the tools of two lists together that both have."""
_LONGEST = 1 << 18
"""Bytes of a tool list that are looked at."""
_TOOL = re.compile(rb'"name"\s*:\s*"([^"\\]{1,64})"')
_UNNAMED = "role"
"""What a role is called whose prompt does not say (`actors.trajectories.roles`)."""


class Agent(msgspec.Struct):
    """One agent of a tenant."""

    id: str
    """The name that it was first met by."""
    tenant: str
    label: str
    tools: frozenset[bytes]
    places: Neighbourhoods


class Saved(msgspec.Struct, frozen=True):
    """An agent as it is stored."""

    id: str
    tenant: str
    label: str
    tools: list[bytes]
    leaders: list[tuple[str, Leader]]


class Agents:
    """All that are remembered, the one longest without a run first."""

    def __init__(self, saved: Iterable[Saved] = ()) -> None:
        self._agents: Remembered[Agent] = Remembered(AGENTS)
        self._known_as: Remembered[str] = Remembered(_NAMES)
        for one in saved:
            self._add(Agent(one.id, one.tenant, one.label, frozenset(one.tools), Neighbourhoods(leaders=one.leaders)))

    def __len__(self) -> int:
        return len(self._agents)

    def __iter__(self) -> Iterator[Agent]:
        return (agent for _, _, agent in self._agents)

    def find(self, run: Trajectory) -> Agent | None:
        """The agent of `run`, None if nobody has met it."""
        known = self._agents.get(self._known_as.get(agent_of(run)) or "")
        return known or self._under_another_name(run)

    def meet(self, run: Trajectory) -> Agent:
        """The agent of `run`, which may be a new one."""
        name, agent = agent_of(run), self.find(run)
        if agent is None:
            agent = Agent(name, run.tenant, _label(run), _tools(run), Neighbourhoods())
            self._add(agent)
        elif self._known_as.look(name) != agent.id:
            # What it is like now is what the next edit is compared with.
            agent.label, agent.tools = _label(run), _tools(run)
            self._known_as.put(name, run.tenant, agent.id)
        return agent

    def state(self) -> list[Saved]:
        """Everything."""
        return [Saved(one.id, one.tenant, one.label, sorted(one.tools), one.places.state()) for one in self]

    def _add(self, agent: Agent) -> None:
        self._agents.put(agent.id, agent.tenant, agent)
        self._known_as.put(agent.id, agent.tenant, agent.id)

    def _under_another_name(self, run: Trajectory) -> Agent | None:
        label, tools = _label(run), _tools(run)
        best, most = None, 0.0
        for agent in self:
            common = _common(tools, agent.tools)
            alike = (common == 1.0 and tools) or (label and label == agent.label and common >= _COMMON)
            if agent.tenant == run.tenant and alike and common >= most:
                best, most = agent, common
        return best


def by_agent(runs: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """`runs`, oldest first, by the agent whose they are, also where nobody has met any; each in its order.

    An agent that calls itself something is one by that, whatever tools it is given at a time. Others are one if half of
    their tools are common, as under `Agents`: prompts are edited and tools renamed, and the newest list is whose it is.
    """
    found: list[tuple[str, str, frozenset[bytes], set[str], list[Trajectory]]] = []
    for run in reversed(list(runs)):
        label, tools, name = _label(run), _tools(run), agent_of(run)
        for tenant, other, theirs, names, group in found:
            same = (tenant, other) == (run.tenant, label)
            if same and (label or name in names or _common(tools, theirs) >= _COMMON):
                names.add(name)
                group.append(run)
                break
        else:
            found.append((run.tenant, label, tools, {name}, [run]))
    return [group[::-1] for _, _, _, _, group in found]


def _label(run: Trajectory) -> str:
    label = called(agent_of(run)).rpartition("/")[2]
    return "" if label == _UNNAMED else label


def _tools(run: Trajectory) -> frozenset[bytes]:
    return frozenset(_TOOL.findall(run.tools[:_LONGEST]))


def _common(tools: frozenset[bytes], others: frozenset[bytes]) -> float:
    both = len(tools | others)
    return len(tools & others) / both if both else 1.0
