"""Task phrasing: a task that was executed, said the way that somebody who wants it done would."""

from typing import Any, Protocol

import msgspec


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was executed and needs words."""

    goal: str
    """What the templates made of it."""
    calls: tuple[tuple[str, dict[str, Any]], ...]
    """Tool and arguments of the reference, in order."""
    descriptions: dict[str, str]
    """What the tools say of themselves, by name."""
    told: tuple[str, ...]
    """Values that the goal must name: nobody can find them out."""
    hidden: tuple[str, ...]
    """Values that it must not name: finding them out is the task."""
    changed: dict[str, Any]
    """What the reference changes: state keys with their new value."""
    style: str = ""


class TaskPhrasing(Protocol):
    """Says a draft in words; a language model is one."""

    async def word(self, draft: Draft) -> str:
        """A goal for `draft`, in one paragraph. What it says is checked by the caller.

        Raises:
            WordingFailed: no usable answer; the template's words will do.
        """
        ...


__all__ = ["Draft", "TaskPhrasing"]
