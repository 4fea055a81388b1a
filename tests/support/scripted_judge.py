"""A judge that says what was decided beforehand, apart for what it sees and for what it sees blind."""

from collections.abc import Mapping

from actors.messages import Attribution, StepLabel, Trajectory

Labels = tuple[StepLabel, ...]


class ScriptedJudge:
    """Labels by trajectory id.

    Args:
        seen: for trajectories with their outcome.
        blind: for those without.
    """

    rubric = "scripted"

    def __init__(self, seen: Mapping[str, Labels], blind: Mapping[str, Labels], name: str = "scripted") -> None:
        self.name, self._seen, self._blind = name, seen, blind

    async def label(self, trajectory: Trajectory) -> Attribution:
        labels = (self._blind if trajectory.outcome is None else self._seen)[trajectory.id]
        return Attribution(labels=labels, judge=self.name, rubric=self.rubric)
