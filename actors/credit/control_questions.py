"""`ControlQuestions`: questions to the judge that give no labels but tell how good its labels are.

None of them holds a trajectory up: where the judge is away, fails, or has no budget left, there is no evidence, and
that is all. The same trajectory is always chosen for the same trials, and the same content is one piece of evidence,
however often it comes.
"""

from collections.abc import Mapping

import msgspec

from actors.credit.asking import Asking
from actors.credit.content import content_hash
from actors.credit.judgement_cache import JudgementCache
from actors.kinds.holdout import chance
from actors.messages import Attribution, StepLabel, Trajectory
from actors.system.errors import DependencyUnavailable

SUCCESS = 0.5
"""Outcome from which on a trajectory has succeeded."""
BLIND_SHARE = 0.1
"""Of trajectories with a verified outcome, those that the judge is shown blind as well, at its usual price."""


class ControlQuestions:
    """One judge's. None of its questions is begun after `until` (anyio's time)."""

    def __init__(self, asking: Asking, judgements: JudgementCache) -> None:
        self._asking, self._judgements = asking, judgements

    async def blind(self, trajectory: Trajectory, until: float) -> None:
        """Show the judge a trajectory without its outcome, if that is verified: a sandbox's verdict, or feedback."""
        if trajectory.outcome is None or not trajectory.steps or chance(trajectory.id, "blind") >= BLIND_SHARE:
            return
        hidden = msgspec.structs.replace(trajectory, outcome=None)
        judge = self._asking.judge
        key = content_hash(judge.name, f"{judge.rubric} blind", hidden)
        await self._judgements.look_up([key])
        found = None if self._judgements.found(key) else await self._extra(hidden, until)
        if found is not None:
            good = trajectory.outcome >= SUCCESS
            self._judgements.stats.observe("outcomes", found, found.labels, trajectory, good=good)
            await self._judgements.judged(key, trajectory, found)
            self._judgements.claim(key)

    async def told(self, trajectory: Trajectory, said: Mapping[int, StepLabel], until: float) -> None:
        """Ask about a trajectory whose labels all come from feedback."""
        if trajectory.steps and chance(trajectory.id, "blind") < BLIND_SHARE:
            found = await self._extra(trajectory, until)
            if found is not None:
                self.steps(trajectory, found, said)

    def steps(self, trajectory: Trajectory, found: Attribution, said: Mapping[int, StepLabel]) -> None:
        """Hold the judge's labels against what was reported of the same steps."""
        for number, report in said.items():
            if report.label != "ABSTAIN" and 0 <= number < len(found.labels):
                label = found.labels[number : number + 1]
                self._judgements.stats.observe("steps", found, label, trajectory, good=report.label == "GOOD")

    async def _extra(self, trajectory: Trajectory, until: float) -> Attribution | None:
        try:
            found = await self._asking.once(trajectory, until)
        except DependencyUnavailable:
            return None
        return found if isinstance(found, Attribution) else None
