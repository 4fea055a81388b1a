"""The attributor: gives every step of a closed trajectory its label.

    trajectory.closed -> [judge] -> trajectory.attributed

It asks the judge for each trajectory, several at a time, and adds which cluster of goals the trajectory belongs to. A
judge that fails abstains: after a few attempts every step is ABSTAIN, which the learner masks; the outcome still
counts. A failed judgement never becomes a label. A judge that is away (`JudgeUnavailable`) is waited for instead.

What somebody reported of a step outranks what a judge thinks of it: feedback on a step that is there when the
trajectory gets its credit is that step's label, and a trajectory with feedback on every step is shown to no judge. What
comes later is kept and counted by the store, and changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import anyio
import msgspec
import structlog

from actors.clusters import cluster_of
from actors.messages import Attributed, Attribution, Feedback, StepLabel, Trajectory
from actors.system.actor import Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED
from adapters.errors import JudgeUnavailable
from adapters.judges import Judge

FEEDBACK = "feedback"
"""Judge and rubric of a trajectory that no judge saw."""

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


class Evidence(Protocol):
    """What is known of steps without a judge; the store does it."""

    async def step_feedback(self, runs: Sequence[Trajectory]) -> Mapping[str, Sequence[tuple[int, Feedback]]]:
        """Feedback on single steps by trajectory, with the step's number, oldest first."""
        ...


class Attributor:
    """Actor: closed trajectories in, attributed ones out.

    Args:
        settings: batch sizes, attempts and deadlines.
        judge: gives the labels.
        evidence: goes before the judge; none: there is none.
    """

    name = "attributor"
    inputs = (TRAJECTORY_CLOSED,)
    tick_seconds: float | None = None

    def __init__(self, settings: AttributorSettings, *, judge: Judge, evidence: Evidence | None = None) -> None:
        self._settings, self._judge, self._evidence = settings, judge, evidence
        self.judged = 0
        """Trajectories that the judge labelled."""
        self.abstained = 0
        """Trajectories that the judge failed on."""
        self.told = 0
        """Steps whose label is what somebody reported."""

    @property
    def batch(self) -> int:
        return self._settings.batch

    async def start(self) -> None:
        """Nothing to rebuild: there is no state."""

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Label the trajectories of `batch`.

        Raises:
            DependencyUnavailable: the judge, or the evidence, is away.
        """
        trajectories = [received.message for received in batch if isinstance(received.message, Trajectory)]
        told = await self._told(trajectories)
        labelled: list[Attribution | None] = [None] * len(trajectories)
        away: list[DependencyUnavailable] = []
        slots = anyio.CapacityLimiter(self._settings.concurrency)

        async def one(index: int) -> None:
            async with slots:
                if away:
                    return
                try:
                    labelled[index] = await self._label(trajectories[index], told)
                except JudgeUnavailable as error:
                    away.append(DependencyUnavailable(f"judge {self._judge.name}: {error}"))
                except DependencyUnavailable as error:
                    away.append(error)

        async with anyio.create_task_group() as group:
            for index in range(len(trajectories)):
                group.start_soon(one, index)
        if away:
            raise away[0]
        # Judges may take minutes, in which more was said.
        told = await self._told(trajectories)
        attributed = [
            Attributed(
                id=trajectory.id,
                trajectory=trajectory,
                attribution=self._overruled(attribution, told.get(trajectory.id, {})),
                cluster=cluster_of(trajectory.goal),
            )
            for trajectory, attribution in zip(trajectories, labelled, strict=True)
            if attribution is not None
        ]
        return Result(attributed, [Output(TRAJECTORY_ATTRIBUTED, message) for message in attributed])

    async def tick(self) -> Result:
        return Result()

    async def _label(self, trajectory: Trajectory, told: Mapping[str, Mapping[int, StepLabel]]) -> Attribution:
        if trajectory.steps and len(told.get(trajectory.id, {})) == len(trajectory.steps):
            nothing = StepLabel("ABSTAIN", 0.0)
            return Attribution(labels=(nothing,) * len(trajectory.steps), judge=FEEDBACK, rubric=FEEDBACK)
        return await self._judged(trajectory)

    def _overruled(self, attribution: Attribution, told: Mapping[int, StepLabel]) -> Attribution:
        self.told += len(told)
        labels = tuple(told.get(number, label) for number, label in enumerate(attribution.labels))
        return msgspec.structs.replace(attribution, labels=labels)

    async def _told(self, trajectories: Sequence[Trajectory]) -> Mapping[str, Mapping[int, StepLabel]]:
        """Labels by trajectory and step, as reported; of several reports on a step the last counts."""
        if self._evidence is None or not trajectories:
            return {}
        said = await self._evidence.step_feedback(trajectories)
        return {key: {number: label_of(feedback) for number, feedback in found} for key, found in said.items()}

    async def _judged(self, trajectory: Trajectory) -> Attribution:
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


def label_of(feedback: Feedback) -> StepLabel:
    """The label that a report on a step is; who says neither good nor bad is not overruled by a judge."""
    outcome = 0.5 if feedback.outcome is None else feedback.outcome
    label = "GOOD" if outcome > 0.5 else "BAD" if outcome < 0.5 else "ABSTAIN"
    reason = f"feedback: {feedback.text}" if feedback.text.strip() else "feedback"
    return StepLabel(label, abs(2.0 * outcome - 1.0), reason[:200])
