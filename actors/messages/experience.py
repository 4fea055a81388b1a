"""What was learned in words: lessons, and tasks to try them on."""

from collections.abc import Iterable
from typing import Any, Literal

from actors.messages.base import Message

ExperienceKind = Literal["rename", "precondition", "practice", "insight", "skill", "tool"]
"""What a lesson is: about a tool's new name, what must go before a call, how a goal is served; an insight in free
words; a sequence of calls that works; what one tool is good for and how it fails."""
ExperienceState = Literal["candidate", "active", "retired", "quarantined"]
"""On trial; in use; no longer used; kept apart because too few independent sources stand behind it."""


class Experience(Message, frozen=True, kw_only=True, tag="experience"):
    """A lesson: when to use it and what to do, with how it fared in guided against unguided rollouts."""

    tenant: str = "default"
    when_to_use: str
    content: str
    kind: ExperienceKind = "practice"
    origin: str = ""
    """Who drew it: "contrast", "probe", "llm" with the model's name, "import", "operator"; empty in old records."""
    sources: tuple[str, ...] = ()
    """Ids of the trajectories it was drawn from."""
    asked: tuple[str, ...] = ()
    """Goals of some of them, names and numbers masked: in what words people ask for what it is about."""
    independent: int = 0
    """Different origins (agent keys, conversations) among its sources, as counted when it was drawn."""
    detail: dict[str, Any] = {}
    """What kinds of their own need beside the text: a skill's calls, a tool's figures. JSON-able."""
    state: ExperienceState = "candidate"
    reason: str = ""
    """Why it is in this state."""
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


def lessons_text(lessons: Iterable[Experience]) -> str:
    """The lessons as they stand in a prompt: one line each, every line preceded by a newline; empty for none."""
    return "".join(f"\nWhen to use: {lesson.when_to_use}. Content: {lesson.content}." for lesson in lessons)
