"""The attributor: gives every step of a closed trajectory its label.

    trajectory.closed -> [judge] -> trajectory.attributed

It asks the judge for each trajectory, several at a time, and adds which cluster of goals the trajectory belongs to. A
judge that fails abstains: after a few attempts every step is ABSTAIN, which the learner masks; the outcome still
counts. A failed judgement never becomes a label. A judge that is away (`JudgeUnavailable`) is waited for instead.
"""

from collections.abc import Sequence

import anyio
import msgspec
import structlog

from actors.clusters import cluster_of
from actors.messages import Attributed, Attribution, StepLabel, Trajectory
from actors.system.actor import Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from adapters.errors import JudgeUnavailable
from adapters.judges import Judge

_log = structlog.get_logger(__name__)


class AttributorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How trajectories are judged."""

    batch: int = 64
    """Trajectories taken at a time."""
    concurrency: int = 8
    """Judgements under way at once."""
    attempts: int = 3
    """Times that a trajectory is shown to a judge that fails, before its steps abstain."""
    timeout: float = 120.0
    """Seconds that one judgement may take."""


class Attributor:
    """Actor: closed trajectories in, attributed ones out.

    Args:
        settings: batch sizes, attempts and deadlines.
        judge: gives the labels.
    """

    name = "attributor"
    inputs = (TRAJECTORY_CLOSED,)
    tick_seconds: float | None = None

    def __init__(self, settings: AttributorSettings, *, judge: Judge) -> None:
        self._settings, self._judge = settings, judge
        self.judged = 0
        """Trajectories that the judge labelled."""
        self.abstained = 0
        """Trajectories that the judge failed on."""

    @property
    def batch(self) -> int:
        return self._settings.batch

    async def start(self) -> None:
        """Nothing to rebuild: there is no state."""

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Label the trajectories of `batch`.

        Raises:
            DependencyUnavailable: the judge is away.
        """
        trajectories = [received.message for received in batch if isinstance(received.message, Trajectory)]
        labelled: list[Attribution | None] = [None] * len(trajectories)
        away: list[JudgeUnavailable] = []
        slots = anyio.CapacityLimiter(self._settings.concurrency)

        async def one(index: int) -> None:
            async with slots:
                if away:
                    return
                try:
                    labelled[index] = await self._label(trajectories[index])
                except JudgeUnavailable as error:
                    away.append(error)

        async with anyio.create_task_group() as group:
            for index in range(len(trajectories)):
                group.start_soon(one, index)
        if away:
            raise DependencyUnavailable(f"judge {self._judge.name}: {away[0]}") from away[0]
        attributed = [
            Attributed(
                id=trajectory.id,
                trajectory=trajectory,
                attribution=attribution,
                cluster=cluster_of(trajectory.goal),
            )
            for trajectory, attribution in zip(trajectories, labelled, strict=True)
            if attribution is not None
        ]
        return Result(attributed, [Output(TRAJECTORY_ATTRIBUTED, message) for message in attributed])

    async def tick(self) -> Result:
        return Result()

    async def _label(self, trajectory: Trajectory) -> Attribution:
        reason = ""
        for attempt in range(1, self._settings.attempts + 1):
            try:
                with anyio.fail_after(self._settings.timeout):
                    attribution = await self._judge.label(trajectory)
            except JudgeUnavailable:
                raise
            # Whatever a judge of any origin raises, it must not cost us the trajectory.
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            else:
                if len(attribution.labels) == len(trajectory.steps):
                    self.judged += 1
                    return attribution
                reason = f"{len(attribution.labels)} labels for {len(trajectory.steps)} steps"
            _log.warning("judge_failed", trajectory=trajectory.id, attempt=attempt, reason=reason[:200])
        self.abstained += 1
        return self._abstention(trajectory, reason)

    def _abstention(self, trajectory: Trajectory, reason: str) -> Attribution:
        label = StepLabel("ABSTAIN", 0.0, f"judge failed: {reason}"[:200])
        return Attribution(labels=(label,) * len(trajectory.steps), judge=self._judge.name, rubric=self._judge.rubric)
