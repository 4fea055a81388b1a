"""Which agent a run is of, though prompts are edited and tools renamed: the same agent keeps what is known of it.

An agent's name (`agent_of`) holds a digest of system prompt and tools, so every edit makes a new name. A new name is of
a known agent of the tenant if it calls itself the same and has at least half of its tools, or calls itself nothing, or
did, and has the same ones. Who calls itself something else is another, whatever the tools.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from actors.kinds.remembered import Remembered
from actors.messages import Trajectory, agent_of, called

NAMES = 1024
"""Names that are known to be some agent's; the one longest without a run goes first."""
_COMMON = 0.5
"""Share of the tools of two lists together that both have."""
_LONGEST = 1 << 18
"""Bytes of a tool list that are looked at."""
_TOOL = re.compile(rb'"name"\s*:\s*"([^"\\]{1,64})"')
_UNNAMED = "role"
"""What a role is called whose prompt does not say (`actors.trajectories.roles`)."""


class Agent(msgspec.Struct, frozen=True):
    """An agent, as it was under one name."""

    id: str
    """The name that it was first met by."""
    label: str
    """What it calls itself; empty for nothing."""
    tools: frozenset[bytes]

    def likeness(self, label: str, tools: frozenset[bytes]) -> float:
        """Share of the tools that both have, 0 where `label` and `tools` are another agent's."""
        both = len(self.tools | tools)
        common = len(self.tools & tools) / both if both else 1.0
        if label == self.label:
            return common if common >= _COMMON else 0.0
        return float(not (label and self.label) and bool(tools) and common == 1.0)


class Agents:
    """What agents are known by, `known` from an earlier life: name, tenant and agent."""

    def __init__(self, known: Iterable[tuple[str, str, Agent]] = ()) -> None:
        self._known = Remembered[Agent](NAMES, known)

    def __len__(self) -> int:
        return len({agent.id for _, _, agent in self._known})

    def find(self, run: Trajectory) -> str:
        """The agent of `run`; its own name if nobody has met it."""
        known = self._known.get(agent_of(run))
        return known.id if known else self._like(run).id

    def meet(self, run: Trajectory) -> str:
        """The agent of `run`, which may be a new one."""
        name = agent_of(run)
        if name not in self._known:
            self._known.put(name, run.tenant, self._like(run))
        return self.find(run)

    def state(self) -> list[tuple[str, str, Agent]]:
        """Everything."""
        return list(self._known)

    def _like(self, run: Trajectory) -> Agent:
        """`run`'s agent by what it is like: one that is known under another name, or a new one."""
        label, tools = called(agent_of(run)).rpartition("/")[2], frozenset(_TOOL.findall(run.tools[:_LONGEST]))
        label = "" if label == _UNNAMED else label
        found, most = agent_of(run), 0.0
        for _, tenant, agent in self._known:
            likeness = agent.likeness(label, tools) if tenant == run.tenant else 0.0
            # Of equals the one that ran last.
            if likeness and likeness >= most:
                found, most = agent.id, likeness
        return Agent(found, label, tools)


def by_agent(runs: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """`runs`, oldest first, by the agent whose they are, also where nobody has met any; each in its order."""
    agents = Agents()
    found: defaultdict[str, list[Trajectory]] = defaultdict(list)
    for run in reversed(list(runs)):
        found[agents.meet(run)].append(run)
    return [group[::-1] for group in found.values()]
