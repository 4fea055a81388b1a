"""Rewriters: a lesson put into words that fit the case at hand, before it is given."""

from typing import Protocol


class Rewriter(Protocol):
    """Adapts a lesson's text to a goal."""

    async def rewrite(self, content: str, goal: str, step: str) -> str:
        """`content`, as it should be said to whoever has `goal` and last saw `step`.

        Raises:
            RewriterFailed: no answer in time, or one that cannot be used; the lesson is then given as it is.
        """
        ...


__all__ = ["Rewriter"]
