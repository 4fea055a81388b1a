"""Judges: who says, step by step, what helped and what did not.

The attributor asks one judge for every closed trajectory; the learner turns the labels into the process channel of the
advantage. A judge sees what a tap sees: actions, observations and, if somebody reported it, the outcome.
"""

from typing import Protocol

from actors.messages import Attribution, Trajectory


class Judge(Protocol):
    """Labels the steps of a trajectory GOOD, BAD or ABSTAIN."""

    name: str
    """Stands in `Attribution.judge`."""
    rubric: str
    """Version of the rules or of the prompt; labels of different rubrics are not comparable."""

    async def label(self, trajectory: Trajectory) -> Attribution:
        """One label a step, in order. What cannot be told is ABSTAIN: the learner masks it.

        Raises:
            JudgeUnavailable: the judge cannot be reached for now; asking again later is worth it.
        """
        ...


__all__ = ["Attribution", "Judge", "Trajectory"]
