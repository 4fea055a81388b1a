"""The attributor between labels and learner, so that what the labels turn out to be worth is what they weigh."""

import anyio

from actors.credit.attributor import Attributor, AttributorSettings
from actors.credit.calibration import CalibrationSettings
from actors.credit.judgement_cache import CacheSettings
from actors.messages import Attributed, StepLabel, Trajectory
from actors.system.actor import Received
from actors.system.streams import TRAJECTORY_CLOSED
from tests.support.scripted_judge import Labels, ScriptedJudge


class Watched:
    """An attributor whose judge says what it is given.

    Args:
        blind: share of the trajectories whose labels are held against their outcome.
    """

    def __init__(self, blind: float) -> None:
        self._seen: dict[str, Labels] = {}
        self._blind: dict[str, Labels] = {}
        # No cache: each attempt keeps the labels that it was dealt, as in the arms without weights.
        settings = AttributorSettings(cache=CacheSettings(entries=0), calibration=CalibrationSettings(share=blind))
        self._actor = Attributor(settings, judge=ScriptedJudge(self._seen, self._blind))

    def attributed(
        self, dealt: list[tuple[Trajectory, tuple[StepLabel, ...], tuple[StepLabel, ...]]]
    ) -> list[Attributed]:
        """Trajectories with the labels that the judge has for them, and those it would have had blind."""
        for run, seen, blind in dealt:
            self._seen[run.id], self._blind[run.id] = seen, blind
        batch = [Received(run.id, TRAJECTORY_CLOSED, run) for run, _, _ in dealt]
        result = anyio.run(self._actor.handle, batch, backend="trio")
        self._seen.clear()
        self._blind.clear()
        return [record for record in result.records if isinstance(record, Attributed)]
