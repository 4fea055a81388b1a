"""What was learned in words: lessons, and tasks to try them on."""

from typing import Any, Literal

from actors.messages.base import Message


class Experience(Message, frozen=True, kw_only=True, tag="experience"):
    """A lesson: when to use it and what to do, with how it fared in guided against unguided rollouts."""

    tenant: str = "default"
    when_to_use: str
    content: str
    kind: Literal["rename", "precondition", "practice"] = "practice"
    sources: tuple[str, ...] = ()
    """Ids of the trajectories it was drawn from."""
    state: Literal["candidate", "active", "retired"] = "candidate"
    revision: int = 0
    guided: tuple[int, int] = (0, 0)
    """(tried, succeeded) with the lesson in the prompt."""
    unguided: tuple[int, int] = (0, 0)
    """(tried, succeeded) on goals that match it, without."""
    updated: float = 0.0


class Task(Message, frozen=True, kw_only=True, tag="task"):
    """Something to attempt in an environment, with what its verifier needs."""

    goal: str
    environment: str
    spec: dict[str, Any] = {}
    """What the environment needs to set the task up again; JSON-able, meaningless to anyone else."""
    difficulty: float = 0.5
    origin: Literal["environment", "questioner", "production", "heldout"] = "environment"
