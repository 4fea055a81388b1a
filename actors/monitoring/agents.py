"""Which agent a run is of, and with which tool lists agents work.

An agent is known by the name that its prompt gives it (`actors.messages.agent_of`), whose digest is another where a
prompt begins with the day of the week, or, without a prompt, where tools change. So a new name is the old agent's if
tenant, label and most tools are the same; else a new agent speaks for the first time.

A list is news once the agent has used it so often in a row that this is too unlikely under what it did before, by
Laplace's rule against a bound over all its runs: twice for an agent that had one list ever, longer for one of several.
Of agents that bring other tools with every request nothing is said.
"""

from collections.abc import Iterator

import msgspec

from actors.messages import called

_ALIKE = 0.5
"""Of the smaller of two tool lists, what both must have to be one agent's."""
_AGENTS = 256
"""Agents that are remembered; the one heard of longest ago goes first."""
_LISTS = 64
"""Tool lists that are remembered of an agent; the one seen longest ago goes first."""
_NAMES = 8
"""Names of an agent that are remembered, the first and the newest."""
_ERROR = 1 / 3
"""So chosen that an agent that had one list in eight runs is believed the second time that it has another."""
_VARIED = 8
"""An agent with so many lists, and a new one in less than so many runs, brings them as it likes."""


class ToolList(msgspec.Struct):
    """A tool list that an agent's requests carried."""

    names: tuple[str, ...]
    seen: float
    """When last."""
    sightings: int = 0
    streak: int = 0
    """The agent's last sightings in a row, once it has been the last."""
    before: int = 0
    """Sightings before those."""
    runs: int = 0
    """The agent's runs before those."""
    told: bool = False
    """It was reported, or it was there from the start."""


class Agent(msgspec.Struct):
    """What is known of an agent."""

    tenant: str
    names: list[str]
    """That `agent_of` gave it: the first, then the newest."""
    seen: float = 0.0
    runs: int = 0
    novelties: int = 0
    """Lists that were new, but for the first."""
    last: str = ""
    """Digest of the list of its newest run."""
    lists: dict[str, ToolList] = {}

    def varied(self) -> bool:
        """Whether tools are chosen request by request."""
        return self.novelties >= _VARIED and self.novelties * _VARIED > self.runs

    def sighted(self, digest: str, names: tuple[str, ...], at: float, forget: float) -> None:
        """A run ended `at` a time with this list; one that was away for `forget` seconds is as new."""
        known = self.lists.get(digest)
        if known is None or at - known.seen > forget:
            first = not self.lists
            self.novelties += not first
            known = self.lists[digest] = ToolList(names, at, told=first)
            known.runs, self.last = self.runs, digest
        elif self.last != digest:
            known.before, known.runs, known.streak, self.last = known.sightings, self.runs, 0, digest
        known.streak += 1
        known.sightings += 1
        known.seen = max(known.seen, at)
        self.runs += 1
        if len(self.lists) > _LISTS:
            del self.lists[min(self.lists, key=lambda one: self.lists[one].seen)]

    def news(self, least: int) -> tuple[str, ToolList] | None:
        """Digest and list, if what it works with has changed; told once."""
        known = self.lists.get(self.last)
        if known is None or known.told or known.streak < least or self.varied():
            return None
        size = known.runs + 2
        again = (known.before + 1) / size
        first = again if known.before else self.novelties / size
        if first * again ** (known.streak - 1) > _ERROR / size**1.5:
            return None
        known.told = True
        return self.last, known


class Agents:
    """All that were heard of lately."""

    def __init__(self, known: dict[str, Agent] | None = None) -> None:
        self.known = known or {}
        self._first = {name: first for first, agent in self.known.items() for name in agent.names}

    def __iter__(self) -> Iterator[tuple[str, Agent]]:
        return iter(self.known.items())

    def name(self, agent: str, tenant: str, tools: tuple[str, ...], at: float) -> str:
        """The first name of `agent`, whose run ended `at` a time with `tools`."""
        first = self._first.get(agent)
        if first is None:
            first = self._alike(agent, tools) or agent
            known = self.known.setdefault(first, Agent(tenant, []))
            known.seen = max(known.seen, at)
            self._first[agent] = first
            known.names.append(agent)
            if len(known.names) > _NAMES:
                # The first stays: it is the one that runs are remembered under.
                del self._first[known.names.pop(1)]
            if len(self.known) > _AGENTS:
                self._forget(first)
        known = self.known[first]
        known.seen = max(known.seen, at)
        return first

    def _alike(self, agent: str, tools: tuple[str, ...]) -> str | None:
        """The agent of the same tenant and label that has had tools most like these."""
        mine, best = set(tools), (0.0, "")
        for first, known in self.known.items():
            if called(first) != called(agent):
                continue
            lists = [set(one.names) for one in known.lists.values()]
            shared = max((len(mine & other) / min(len(mine), len(other)) for other in lists if mine), default=0.0)
            if not mine and not lists:
                shared = 1.0
            best = max(best, (shared, first))
        return best[1] if best[0] >= _ALIKE else None

    def _forget(self, new: str) -> None:
        gone = min((first for first in self.known if first != new), key=lambda first: self.known[first].seen)
        del self.known[gone]
        self._first = {name: first for name, first in self._first.items() if first in self.known}
