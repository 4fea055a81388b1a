"""Have the tools changed under an agent? Three signs, from sure to vague.

Another tool list than the agent had (`actors.monitoring.agents`); a rise of the share of steps answered with an error;
a fall of success although nothing was swapped (both by `actors.monitoring.windows`, at a stated error an agent and
week).
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from actors.monitoring.agents import Agent, Agents
from actors.monitoring.history import History
from actors.monitoring.monitor import Finding, Monitor
from actors.monitoring.windows import Rise, Windows, level
from actors.tool_results.runs import RunSummary

Cause = Literal["tools", "errors", "outcomes"]
ERROR_RATE = 0.01
"""Chance that an agent under which nothing changed is said to have more errors or less success, a week; outages of
minutes and the hours of the day are nothing that changed."""
_ERROR_JUMP = 0.15
"""Smallest rise in the share of error steps that counts as drift, in each of six quarters of an hour in a row."""
_COLLAPSE = 0.3
"""Smallest fall of success without a swap that counts as drift, in each of six quarters of an hour in a row, or longer
where few runs are reported."""
_QUESTIONS = 2
"""Errors and success: they share the error rate."""
_SIGHTINGS = 2
"""An agent's runs in a row with a new tool list before it is believed: one may be a client's slip. An agent that had
several lists needs more."""
_FORGET_SECONDS = 86_400.0
"""A tool list that was away for a day is news again."""


class World(msgspec.Struct):
    """How one agent fares."""

    errors: Windows = msgspec.field(default_factory=Windows)
    failures: Windows = msgspec.field(default_factory=Windows)


class ToolState(msgspec.Struct):
    """What the monitor remembers."""

    agents: dict[str, Agent] = {}
    worlds: dict[str, World] = {}
    """By the agent's first name; of agents that are remembered."""


class ToolDrift(Monitor):
    """Watches tool lists, errors of tools, and success without a swap."""

    name = "tools"

    def __init__(self) -> None:
        self._agents, self._worlds = Agents(), dict[str, World]()

    def known_as(self, run: RunSummary, names: tuple[str, ...]) -> str:
        """The first name of the agent that `run`, with these tools, is of."""
        return self._agents.name(run.agent, run.tenant, names, run.ended)

    def sighted(self, run: RunSummary, names: tuple[str, ...]) -> None:
        """A run came with this tool list; its agent is the one of `known_as`."""
        agent = self._agents.known.get(run.agent)
        if agent is not None and names:
            agent.sighted(run.tools, names, run.ended, _FORGET_SECONDS)

    def look(self, history: History, now: float) -> list[Finding]:
        found: list[Finding] = []
        self._take_in(history)
        self._worlds = {name: world for name, world in self._worlds.items() if name in self._agents.known}
        for name, agent in self._agents:
            sure = self._changed(name, agent, now)
            world = self._worlds.get(name)
            if sure is not None:
                found.append(sure)
                if world is not None:
                    # The sure sign explains the vague ones that are about to follow from it.
                    world.errors.clear()
                    world.failures.clear()
            elif world is not None:
                found += self._vague(name, agent, world, history)
        return found

    def readings(self) -> Mapping[str, float]:
        return {}

    def save(self) -> bytes:
        return msgspec.msgpack.encode(ToolState(self._agents.known, self._worlds))

    def restore(self, data: bytes) -> None:
        state = msgspec.msgpack.decode(data, type=ToolState)
        self._agents, self._worlds = Agents(state.agents), state.worlds

    def _world(self, agent: str) -> World:
        return self._worlds.setdefault(agent, World())

    def _take_in(self, history: History) -> None:
        """Errors; and outcomes, each for the version that serves: what a swap did is the version monitors' question."""
        for run in history.fresh.heard:
            if run.steps:
                self._world(run.agent).errors.add(run.ended, run.errors, run.steps)
        for run in history.fresh.concluded:
            version = history.version(run)
            # Failures may be reported sooner than successes: only what is known at once is known of old and new runs
            # alike.
            if run.late or (version is None and history.swap is not None):
                continue
            failures, version = self._world(run.agent).failures, -1 if version is None else version
            if version > failures.version:
                failures.clear()
                failures.version = version
            if version == failures.version:
                failures.add(run.ended, float(not run.succeeded), 1.0)

    def _changed(self, name: str, agent: Agent, now: float) -> Finding | None:
        news = agent.news(_SIGHTINGS)
        if news is None:
            return None
        digest, known = news
        names = set(known.names)
        others = [set(other.names) for key, other in agent.lists.items() if key != digest]
        nearest = max(others, key=lambda other: len(other & names) / len(other | names), default=names)
        missing, new = sorted(nearest - names), sorted(names - nearest)
        details = {"tools": digest}
        details |= {"missing": ",".join(missing)} if missing else {}
        details |= {"new": ",".join(new)} if new else {}
        reason = f"tools changed: {len(missing)} gone, {len(new)} new"
        # The period stands in the key so that a tool list that comes back after it was forgotten is told again.
        return _finding("tools", name, agent, (digest, int(now // _FORGET_SECONDS)), reason, details)

    def _vague(self, name: str, agent: Agent, world: World, history: History) -> list[Finding]:
        error = level(ERROR_RATE, _QUESTIONS)
        swapped = 0.0 if history.swap is None else history.swap.since
        found: list[Finding] = []
        errors = world.errors.rise(error, _ERROR_JUMP, swapped)
        if errors is not None:
            text = "tools answer with errors more often than before"
            found.append(
                self._risen("errors", name, agent, errors, f"{text} ({errors.was:.0%} -> {errors.now:.0%} of steps")
            )
        failures = world.failures.rise(error, _COLLAPSE)
        if failures is not None:
            text = "success fell although nothing was swapped"
            fall = f"{1 - failures.was:.0%} -> {1 - failures.now:.0%} of runs with an outcome"
            found.append(self._risen("outcomes", name, agent, failures, f"{text} ({fall}"))
        return found[:1]

    def _risen(self, cause: Cause, name: str, agent: Agent, rise: Rise, text: str) -> Finding:
        details = {"tools": agent.last, "difference": f"{rise.now - rise.was:.3f}"}
        return _finding(cause, name, agent, (cause, int(rise.since)), f"{text}, {rise.runs} runs)", details)


def _finding(
    cause: Cause, name: str, agent: Agent, key: tuple[str | int, ...], reason: str, details: dict[str, str]
) -> Finding:
    return Finding(
        cause=cause,
        key=(name, *key),
        action="drift",
        reason=f"agent {agent.names[-1]}: {reason}",
        details={"cause": cause, "tenant": agent.tenant, "agent": ",".join(agent.names), **details},
    )
