"""A run: a production trajectory in brief, with the figures that monitors compare, and where the judge's word goes.

Everything is read from the trajectory alone. Lengths are in tokens where the engine gave ids, else in characters; the
two never meet, because a run's stratum says which it is.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from actors.kinds.clusters import cluster_of
from actors.messages import Attribution, Step, Trajectory, agent_of, derived_id
from actors.ports.parsed_calls import fault, offered
from actors.ports.tool_answers.reader import failed
from actors.statistics.parties import party_of
from actors.tool_results.answers import CALL_TAGS, goes_round

_AGAIN = 3
"""The same call so many times in a row, for the same answer, is a loop."""
_PROMPT = 900.0
"""Seconds within which a report is prompt: what an idle run waits for one before it closes."""
_QUESTION = ("?", "？", "؟")
_CLOSING = " \t\r\n*_\"')]”’»"
_HEARSAY = "feedback"
"""How the attributor begins the reason of a label that somebody reported: that is not the judge's word."""


class RunSummary(msgspec.Struct, array_like=True):
    """A production trajectory in brief; outcome and judgement may come later."""

    id: str
    tenant: str
    started: float
    ended: float
    low: int
    """Oldest weight version that sampled in it, -1 if unknown."""
    high: int
    tools: str
    """Digest of its tool names."""
    steps: int
    errors: int
    """Steps with a call that failed."""
    outcome: float | None = None
    invalid: int = 0
    """Steps with a call that does not fit the tools."""
    asks: int = 0
    """Steps that ask a question instead of calling a tool."""
    loops: bool = False
    """It goes round in circles: the same call again and again, or a turn of repeated phrases."""
    length: float = 0.0
    """Tokens (characters, without tokens) that the model wrote, a step."""
    tokens: bool = False
    """Whether `length` is in tokens."""
    cluster: str = ""
    """Kind of goal, once the run was judged."""
    good: int = 0
    """Steps that the judge called good."""
    bad: int = 0
    kind: str = ""
    """Kind of goal, read from the goal alone."""
    late: int = 0
    """How late its outcome came, as `lateness` says; 0 without one."""
    party: str = ""
    """Who stands behind it (`actors.statistics.parties`)."""
    agent: str = ""
    """Whose run it was: the name of `agent_of`, or the first that `actors.monitoring.agents` knew the agent by."""
    near: str = ""
    """Neighbourhood of its goal (`actors.kinds.kinds`); empty where nobody asked."""

    @property
    def judged(self) -> float | None:
        """The judge's score: the share of good among the steps that it labelled; None if it labelled none."""
        return self.good / (self.good + self.bad) if self.good + self.bad else None

    @property
    def succeeded(self) -> bool | None:
        return None if self.outcome is None else self.outcome >= 0.5


def lateness(seconds: float) -> int:
    """From the seconds between a run's end and its report: 0 within a quarter of an hour, then one more for each factor
    of four (an hour, four hours, ...)."""
    return math.ceil(math.log(max(seconds, _PROMPT) / _PROMPT, 4))


def all_reported(late: int) -> float:
    """Seconds after which reports that are as late as `late` or less have come."""
    return _PROMPT * 4.0**late


def tool_names(tools: bytes) -> tuple[str, ...]:
    """Sorted names in a request's tool list (JSON); empty if there is none or it cannot be read."""
    return tuple(sorted(offered(tools)))


def call_failed(step: Step) -> bool:
    """Whether a tool that `step` called answered that the call failed; what follows a step without calls is the user's
    word, who may quote an error."""
    return bool(step.tool_calls) and failed(step.observation)


def summarize(trajectory: Trajectory) -> tuple[RunSummary, tuple[str, ...]]:
    """`trajectory` in brief, and its tool names."""
    tools = offered(trajectory.tools)
    names = tuple(sorted(tools))
    written = _tokens(trajectory)
    tokens = written > 0
    if not tokens:
        written = sum(
            len(step.text) + sum(len(call.name) + len(call.arguments) for call in step.tool_calls)
            for step in trajectory.steps
        )
    run = RunSummary(
        id=trajectory.id,
        tenant=trajectory.tenant,
        started=trajectory.started,
        ended=trajectory.ended,
        low=trajectory.min_version,
        high=trajectory.max_version,
        tools=derived_id("tools", *names),
        steps=len(trajectory.steps),
        errors=sum(call_failed(step) for step in trajectory.steps),
        outcome=trajectory.outcome,
        invalid=sum(invalid(step, tools) for step in trajectory.steps),
        asks=sum(asks(step) for step in trajectory.steps),
        loops=loops(trajectory.steps),
        length=written / max(1, len(trajectory.steps)),
        tokens=tokens,
        kind=cluster_of(trajectory.goal),
        party=party_of(trajectory.tenant, trajectory.caller),
        agent=agent_of(trajectory),
    )
    return run, names


def take_judgement(run: RunSummary, attribution: Attribution, cluster: str) -> None:
    """Note what the judge thought of `run`; labels that somebody reported are left out."""
    own = [label.label for label in attribution.labels if not label.reason.startswith(_HEARSAY)]
    run.good, run.bad = own.count("GOOD"), own.count("BAD")
    run.cluster = cluster


def invalid(step: Step, tools: Mapping[str, Any]) -> bool:
    """Whether a call of `step` cannot be right (`fault`), or was meant as a call and could not be read as one."""
    if not step.tool_calls:
        return any(tag in step.text for tag in CALL_TAGS)
    return any(fault(call, tools) for call in step.tool_calls)


def asks(step: Step) -> bool:
    """Whether the turn ends in a question and calls no tool."""
    return not step.tool_calls and step.text.rstrip(_CLOSING).endswith(_QUESTION)


def loops(steps: tuple[Step, ...]) -> bool:
    """Whether the agent goes round in circles."""
    in_a_row, last = 0, None
    for step in steps:
        this = ([(call.name, call.arguments) for call in step.tool_calls], step.observation)
        in_a_row = in_a_row + 1 if step.tool_calls and this == last else 1
        last = this
        if in_a_row >= _AGAIN or goes_round(step.text):
            return True
    return False


def _tokens(trajectory: Trajectory) -> float:
    """Sampled tokens; 0 if a step has none."""
    if not trajectory.rows or any(step.row < 0 for step in trajectory.steps):
        return 0.0
    return float(sum(int((np.frombuffer(row.step, dtype="<i2") >= 0).sum()) for row in trajectory.rows))
