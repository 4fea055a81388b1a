"""Extractors: trajectories to lessons in free words, where a language model is at hand.

Contrast of tool sequences needs none and is always there; an extractor adds what it cannot see. What it says is an
opinion: such a lesson is a candidate, never active at once, and one that is drawn from a single agent key's
trajectories is quarantined until those of another say the same.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from actors.messages import Trajectory


class Insight(msgspec.Struct, frozen=True):
    """A lesson in free words."""

    when_to_use: str
    """One line: for what kind of goal."""
    content: str
    """What to do, or not to do."""


class Extractor(Protocol):
    """Draws lessons from trajectories."""

    name: str
    """With the model's name: the `origin` of its lessons."""

    async def draw(self, successes: Sequence[Trajectory], failures: Sequence[Trajectory]) -> tuple[Insight, ...]:
        """The lessons of trajectories with similar goals; either side may be empty, not both.

        No lesson is a good answer; so is none where the endpoint's words cannot be read, or it refuses.

        Raises:
            ExtractorUnavailable: no answer in time, or the budget is spent: ask again later.
        """
        ...
