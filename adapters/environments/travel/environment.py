"""The travel desk behind the environment Protocols: tasks by seed, chat messages, tool calls in, observations out."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from actors.messages import Task, ToolCall, derived_id
from actors.ports.environments import Observation, Profile, Split
from actors.ports.errors import EnvironmentFailed
from adapters.environments.drift_file import DriftFile
from adapters.environments.travel.desk import FAMILIES, Desk
from adapters.environments.travel.drift import BASE, Drift, Variant
from adapters.environments.travel.words import CITIES, PEOPLE

NAME = "travel"
USUAL_FAMILIES = "ABC"
DIFFICULTY = {"A": 0.4, "B": 0.5, "C": 0.7, "D": 0.2, "L": 0.9}


class _Spec(msgspec.Struct, frozen=True):
    """What `Task.spec` holds."""

    seed: str
    family: str


class TravelEpisode:
    """One attempt at a task of the travel desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": desk.goal}]
        self.tools: list[dict[str, Any]] = desk.variant.tools()

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """One tool call a turn; anything else is answered with "bad call", and costs a step like any mistake."""
        return step(self._desk, calls)

    async def evaluate(self) -> float:
        """1.0 if the customer got what they asked for and nothing else happened, else 0.0."""
        return float(self._desk.solved)

    async def state(self) -> dict[str, Any]:
        """What was booked and cancelled, and whether the desk was closed with the right word."""
        return self._desk.state()

    async def aclose(self) -> None:
        """Nothing is held."""


class TravelDesk:
    """A procedural desk: endless tasks, each with a verifiable outcome.

    Args:
        drift_file: JSON of a `Drift`, read again whenever it has changed; None or a missing file for no drift.
    """

    name = NAME

    def __init__(self, drift_file: Path | str | None = None) -> None:
        self._drift = DriftFile(
            Path(drift_file) if drift_file else None, lambda changed: Variant.of(Drift.read(changed)), BASE
        )

    def profile(self) -> Profile:
        return Profile(
            name=NAME,
            description="A travel desk: find people, search and book flights, cancel orders, work off a queue.",
            entities={"name": PEOPLE, "to": CITIES, "city": CITIES},
            system="You are a travel desk.",
            always=("finish",),
            notes=(
                "Every ticket ends with finish; its answer is the booking reference, or done.",
                "A booking or a cancellation that nobody asked for cannot be undone.",
            ),
        )

    def tools(self) -> list[dict[str, Any]]:
        return self._drift.now().tools()

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """Task number `seed` of `split`; the drift changes the desk, never the task."""
        mix = families or USUAL_FAMILIES
        unknown = sorted(set(mix) - set(FAMILIES))
        if unknown:
            raise ValueError(f"the travel desk has no family {unknown[0]!r}; families: {', '.join(FAMILIES)}")
        key = f"{split}-{seed}"
        family = Random(f"family-{key}").choices(mix, [FAMILIES[letter] for letter in mix])[0]
        return Task(
            id=derived_id(NAME, key, family),
            goal=Desk(key, family, self._drift.now()).goal,
            environment=NAME,
            spec={"seed": key, "family": family},
            difficulty=DIFFICULTY[family],
            origin="heldout" if split == "heldout" else "environment",
        )

    async def reset(self, task: Task) -> TravelEpisode:
        try:
            spec = msgspec.convert(task.spec, _Spec)
        except msgspec.ValidationError as error:
            raise EnvironmentFailed(f"not a task of the travel desk: {error}") from error
        if task.environment != NAME or spec.family not in FAMILIES:
            raise EnvironmentFailed(f"not a task of the travel desk: {task.environment!r}, family {spec.family!r}")
        return TravelEpisode(Desk(spec.seed, spec.family, self._drift.now()))


def step(desk: Desk, calls: Sequence[ToolCall]) -> Observation:
    """Take the model's turn on a desk; the sync part of `TravelEpisode.step`."""
    if desk.done:
        return Observation(json.dumps({"error": "over"}), True)
    arguments = _arguments(calls[0]) if len(calls) == 1 else None
    answer = desk.reject() if arguments is None else desk.call(calls[0].name, arguments)
    return Observation(json.dumps(answer), desk.done)


def _arguments(call: ToolCall) -> dict[str, str] | None:
    """The arguments of a call if they are a JSON object of strings."""
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError):  # the latter: half a surrogate pair, which no JSON holds
        return None
