"""The service desk behind the environment Protocols: tasks by seed, several calls a turn, customers who answer."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import EnvironmentFailed
from adapters.environments.drift_file import DriftFile
from adapters.environments.service_desk.agents import AGENTS, NO_DRIFT, Drift, spoken
from adapters.environments.service_desk.desk import Desk
from adapters.environments.service_desk.grammar import CITIES

NAME = "service_desk"


class _Spec(msgspec.Struct, frozen=True):
    """What `Task.spec` holds."""

    seed: str
    family: str
    split: Split


class ServiceEpisode:
    """One attempt at a task of the service desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": desk.agent.system},
            {"role": "user", "content": desk.goal},
        ]
        self.tools: list[dict[str, Any]] = desk.drift.tools(desk.agent)

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """Any number of calls, each answered on its own; without a call the customer is spoken to."""
        return step(self.desk, calls, text)

    async def evaluate(self) -> float:
        """1.0 if the customer got all that they asked for and nothing else happened, else 0.0."""
        return float(self.desk.solved)

    async def state(self) -> dict[str, Any]:
        return self.desk.state()

    async def aclose(self) -> None:
        """Nothing is held."""


class ServiceDesk:
    """A procedural desk in free words: endless tasks, each with a verifiable outcome.

    Args:
        drift_file: JSON of a `Drift`, read again whenever it has changed; None or a missing file for no drift.
    """

    name = NAME

    def __init__(self, drift_file: Path | str | None = None) -> None:
        self._drift = DriftFile(Path(drift_file) if drift_file else None, Drift.read, NO_DRIFT)

    def profile(self) -> Profile:
        return Profile(
            name=NAME,
            description="A service desk: refunds and returns, orders and parcels, accounts and passwords.",
            entities={"city": CITIES},
            notes=(
                "Three agents, each with its own tools: " + ", ".join(agent.system for agent in AGENTS.values()),
                "The customer is asked in words for what is missing, and told in words that it is done.",
                "A refund, a cancellation or a closed account that nobody asked for cannot be undone.",
            ),
        )

    def tools(self) -> list[dict[str, Any]]:
        drift = self._drift.now()
        return [tool for agent in AGENTS.values() for tool in drift.tools(agent)]

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """Task number `seed` of `split`; the drift changes the desk, never the task."""
        mix = families or "".join(AGENTS)
        unknown = sorted(set(mix) - set(AGENTS))
        if unknown:
            raise ValueError(f"the service desk has no family {unknown[0]!r}; families: {', '.join(AGENTS)}")
        key = f"{split}-{seed}"
        family = Random(f"family-{key}").choice(mix)
        desk = Desk(key, family, split)
        return Task(
            id=derived_id(NAME, key, family),
            goal=desk.goal,
            environment=NAME,
            spec={"seed": key, "family": family, "split": split},
            difficulty=min(1.0, 0.3 + 0.2 * len(desk.cases)),
            origin="heldout" if split == "heldout" else "environment",
        )

    async def reset(self, task: Task) -> ServiceEpisode:
        try:
            spec = msgspec.convert(task.spec, _Spec)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a task of the service desk: {error}") from error
        if task.environment != NAME or spec.family not in AGENTS or spec.split not in get_args(Split):
            raise EnvironmentFailed(f"not a task of the service desk: {task.environment!r}, family {spec.family!r}")
        return ServiceEpisode(Desk(spec.seed, spec.family, spec.split, self._drift.now()))


def step(desk: Desk, calls: Sequence[ToolCall], text: str) -> Observation:
    """Take the model's turn on a desk; the sync part of `ServiceEpisode.step`."""
    if desk.done:
        return Observation("over", True)
    if calls:
        seen = [spoken(desk.agent, desk.call(call.name, _arguments(call))) for call in calls]
        messages = tuple(
            {"role": "tool", "content": one, "tool_call_id": call.id} for call, one in zip(calls, seen, strict=True)
        )
    else:
        seen = [desk.say(text)]
        messages = ({"role": "user", "content": seen[0]},) if seen[0] else ()
    desk.count()
    return Observation("\n".join(seen), desk.done, messages)


def _arguments(call: ToolCall) -> dict[str, str] | None:
    """The arguments of a call if they are a JSON object of strings."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError):  # the latter: half a surrogate pair, which no JSON holds
        return None
