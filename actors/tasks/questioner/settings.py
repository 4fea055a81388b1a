"""`QuestionerSettings`: how much is probed, which tasks are wanted, when two are too alike."""

from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0.0)]


class Preferences(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks you want."""

    difficulty: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)
    """Levels: 1 no call depends on another, 2 one or two do, 3 more."""
    use: dict[str, tuple[str, ...]] = {}
    """Only these values for an argument, such as {city = ["Oslo"]}."""
    avoid: dict[str, tuple[str, ...]] = {}
    """Never these."""
    style: str = ""
    """How goals are worded, for a wording by a language model: "short and polite", say."""
    wording: Literal["any", "learned"] = "any"
    """learned: only tasks that can be told in the words of the environment's own goals."""


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much an environment is probed; no setting, for nobody could choose better by looking at it."""

    breadth: Count = 4
    """Values tried for each tool when it is first seen."""
    walks: Count = 6
    """Instances walked through in each world."""
    depth: Count = 10
    """Calls in a walk at most."""
    tries: Count = 4
    """Times that a known program is executed in a new world, with other values each time."""
    instances: Count = 20_000
    """Instances at most, of one run."""
    steps: Count = 200_000
    """Calls at most, of one run."""
    seconds: Seconds = 600.0
    """Of one run."""
    step_timeout: Seconds = 30.0
    """Seconds for one answer of the environment."""
    barren: Count = 100
    """Worlds in a row without a new task after which there is nothing more to find."""
    failures: Count = 20
    """Instances lost in a row before the environment is given up."""


class FilterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When a task is dropped; no setting either."""

    lexical: Share = 0.8
    """Jaccard likeness of two goals' words, about the same values, from which the second is a duplicate."""
    semantic: Share = 0.92
    """The same for the inner product of their embeddings; 1 to switch it off."""
    least_calls: Count = 2
    """Calls of a reference, the closing one included: below, a task is trivial."""
    most_calls: Count = 24
    program_share: Share = 0.5
    """Share of the tasks at most that come from one program, once there are programs enough."""


class QuestionerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The questioner: tasks that the sandbox sets itself."""

    families: str = ""
    """Kinds of the environment's own tasks in whose worlds it looks around, one letter each; empty: the usual mix."""
    prefer: Preferences = Preferences()
    attempts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Attempts of the current policy at each task, where there is an engine; 0: it is not asked."""
