"""Environments: places where tasks can be attempted and their outcome verified.

What an environment says through these Protocols is what any agent may know: never its answer key. What is async raises
`EnvironmentFailed` where the environment broke down, which says nothing about the agent.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from actors.messages import Task, ToolCall

Split = Literal["train", "heldout"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment is about, for those who invent tasks or look around in it."""

    name: str
    description: str
    entities: dict[str, tuple[str, ...]] = {}
    """Kinds of things that exist, with values an agent may meet; keyed by the argument name that takes them."""
    notes: tuple[str, ...] = ()
    system: str = ""
    """System text that the model's chat template puts where the opening messages have none: a lesson is appended."""
    always: tuple[str, ...] = ()
    """Tools that a search never hides, such as the one that ends an episode."""


class Observation(msgspec.Struct, frozen=True):
    """What an action led to."""

    text: str
    """What the agent is told; an agent's mistake is answered in here, it is no exception."""
    done: bool
    """The episode is over: no further step, time to evaluate."""
    messages: tuple[dict[str, Any], ...] = ()
    """How it is told, as chat messages in OpenAI's form: one `tool` message for each call, or the user's next turn.
    Empty for one `tool` message with `text`."""


class Episode(Protocol):
    """One attempt at a task."""

    messages: list[dict[str, Any]]
    """Opening chat messages, in OpenAI's form."""
    tools: list[dict[str, Any]]
    """The function tools of this attempt; read again before each turn, a step may bring or take some."""

    async def step(self, calls: Sequence[ToolCall], text: str) -> Observation:
        """Take the model's turn: its parsed tool `calls`, and its raw `text` if none could be parsed. After the end it
        is answered with `done` and changes nothing."""
        ...

    async def evaluate(self) -> float:
        """The verified outcome, 0.0 to 1.0, side effects included; 0.0 while the episode is not over."""
        ...

    async def aclose(self) -> None:
        """Let go of what the attempt holds, once, whatever became of it; bounded, and not undone by a cancellation."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """An episode whose world can be looked at: what makes a reached state the verifier of a task."""

    async def state(self) -> dict[str, Any]:
        """All that a task could ask to be changed, JSON-able; two worlds are equal if their states are."""
        ...


@runtime_checkable
class Graded(Protocol):
    """An episode that says whether its outcome is a grader's opinion, where no execution can decide."""

    @property
    def graded(self) -> bool: ...


class Environment(Protocol):
    """A source of verifiable tasks."""

    name: str

    def profile(self) -> Profile:
        """What this environment is about."""
        ...

    def tools(self) -> list[dict[str, Any]]:
        """The function tools as they are now, in OpenAI's form."""
        ...

    def sample(self, seed: int, split: Split, families: str | None) -> Task:
        """The task number `seed`, 0 or more, of a split: the same arguments always give the same task.

        Args:
            split: held-out tasks are only ever used to measure.
            families: which kinds of task, one letter each; None for the usual mix. ValueError: there is none such.
        """
        ...

    async def reset(self, task: Task) -> Episode:
        """Begin an attempt at `task`; attempts of one task are independent and start alike. EnvironmentFailed also
        where it is no task of this environment."""
        ...
