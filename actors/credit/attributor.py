"""The attributor: gives every step of a closed trajectory its label.

    trajectory.closed -> [judge] -> trajectory.attributed

What a judge has seen before, under whatever id, gets the labels that it got then; what is not worth its price
(`worth`) is not shown to it. A judge that fails abstains: the learner masks the step. One that is away is waited for.
What somebody reported of a step outranks the judge. How far the labels can be trusted travels with them as their
weight.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import msgspec
import structlog
from prometheus_client import Histogram

from actors.credit.asking import Asking, Reason, Refusal
from actors.credit.judge_stats import JudgeStats
from actors.credit.judgement_cache import JudgementCache, content_hash, silent
from actors.kinds.clusters import cluster_of
from actors.kinds.holdout import chance
from actors.messages import Attributed, Attribution, Feedback, StepLabel, Trajectory
from actors.ports.models import Judge
from actors.store import Store
from actors.system.actor import Actor, Output, Received, Result
from actors.system.errors import DependencyUnavailable
from actors.system.streams import TRAJECTORY_ATTRIBUTED, TRAJECTORY_CLOSED

SUCCESS = 0.5
"""Outcome from which on a trajectory has succeeded."""
BLIND_SHARE = 0.1
"""Of trajectories with a verified outcome, those that the judge is shown blind as well, at its usual price: the same
ones each time."""
_OURS: tuple[Reason, ...] = ("not_sampled", "budget")
"""Reasons for which the judge was not asked."""
PATIENCE = 300.0
"""Seconds after which no judgement of a batch is begun any more; what is missing is asked for in a new attempt at the
batch, which finds the others done."""
_LAG_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
FEEDBACK = "feedback"
"""Judge and rubric of a trajectory that no judge saw."""

Told = Mapping[str, Mapping[int, StepLabel]]
_log = structlog.get_logger(__name__)


class Attributor(Actor):
    """Actor: closed trajectories in, attributed ones out. Two runners may drive one; they share all of its state. What
    people said of steps, and what must outlive the process, is in `store`; none: nothing is kept."""

    name = "attributor"
    inputs = (TRAJECTORY_CLOSED,)
    batch = 64
    """Trajectories taken at a time. The daemon judges one such batch while it writes another."""
    renews = True

    def __init__(
        self, *, judge: Judge, concurrency: int = 8, share: float = 1.0, tokens_per_day: float = 0,
        store: Store | None = None, clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """
        Args:
            concurrency: judgements under way at once.
            share: what is judged of successes, and of runs without an outcome. 1: everything, which suits a judge that
                costs nothing.
            tokens_per_day: LLM tokens, prompts and answers; 0: no limit. Beyond it steps get no label; their outcome
                still counts.
        """
        self._judge, self._share, self._store, self._clock = judge, share, store, clock
        self._tokens_per_day = tokens_per_day
        self.stats = JudgeStats(tokens_per_day, clock)
        self._judgements = JudgementCache(self.stats, store)
        self.asking = Asking(judge, self.stats, concurrency)
        self._flying: dict[str, anyio.Event] = {}
        self.counts: Counter[str] = Counter(judged=0, cached=0, told_steps=0, told=0)
        """Trajectories that the judge labelled, that it had labelled before, and that people did; steps with feedback;
        and what abstained, by reason (`abstained_...`)."""
        self.lag = Histogram(
            "evolved_attributor_lag_seconds", "From the end of a trajectory to its labels.", registry=None,
            buckets=_LAG_SECONDS,
        )  # fmt: skip

    async def start(self) -> None:
        """Read what was spent, and what is known of the judge."""
        await self._judgements.open()

    async def handle(self, batch: Sequence[Received]) -> Result:
        """Label the trajectories of `batch`. DependencyUnavailable: the judge, or the store, is away, or the batch is
        not done yet; what was judged is kept, and not asked again."""
        trajectories = [received.message for received in batch if isinstance(received.message, Trajectory)]
        told = await self._told(trajectories)
        labelled = await self._labelled(trajectories, told)
        await self._judgements.write()
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
        ]
        now = self._clock()
        for trajectory in trajectories:
            self.asking.settled(trajectory.id)
            self.lag.observe(max(0.0, now - trajectory.ended))
        return Result(attributed, [Output(TRAJECTORY_ATTRIBUTED, message) for message in attributed])

    def report(self) -> dict[str, Any]:
        """What the judge did, and what every judge cost and was worth, for `GET /api/judge`."""
        return {
            "judge": self._judge.name,
            "rubric": self._judge.rubric,
            "away": self.asking.away,
            "budget": {
                "limits": {"tokens_per_day": self._tokens_per_day},
                "spent": self.stats.today,
                "used_up": self.stats.used_up(),
            },
            "counts": dict(self.counts),
            "judges": self.stats.report(),
        }

    async def _labelled(self, trajectories: Sequence[Trajectory], told: Told) -> list[Attribution]:
        keys = [content_hash(self._judge.name, self._judge.rubric, trajectory) for trajectory in trajectories]
        await self._judgements.look_up(keys)
        labelled: dict[int, tuple[Attribution | Refusal, bool]] = {}
        away: list[DependencyUnavailable] = []
        until = anyio.current_time() + PATIENCE

        async def one(number: int) -> None:
            if away:
                return
            try:
                labelled[number] = await self._label(trajectories[number], keys[number], told, until)
            except DependencyUnavailable as error:
                away.append(error)

        async with anyio.create_task_group() as group:
            for number in range(len(trajectories)):
                group.start_soon(one, number)
        if away:
            raise away[0]
        return [self._settled(trajectory, *labelled[number]) for number, trajectory in enumerate(trajectories)]

    async def _label(
        self, trajectory: Trajectory, key: str, told: Told, until: float
    ) -> tuple[Attribution | Refusal, bool]:
        """Labels, or why there are none; and whether they are those of another trajectory, or of an attempt before."""
        if len(told.get(trajectory.id, {})) == len(trajectory.steps):
            labels = (StepLabel("ABSTAIN", 0.0),) * len(trajectory.steps)
            return Attribution(labels=labels, judge=FEEDBACK, rubric=FEEDBACK), False
        # The same content is asked about once, and the others find it in the cache.
        while key in self._flying:
            await self._flying[key].wait()
        known = self._judgements.found(key)
        found = known or await self._asked(trajectory, key, until)
        await self._ask_blind(trajectory, until)
        return found, known is not None

    async def _asked(self, trajectory: Trajectory, key: str, until: float) -> Attribution | Refusal:
        if not worth(trajectory, self._share):
            return Refusal("not_sampled", "not sampled")
        self._flying[key] = anyio.Event()
        try:
            found = await self.asking.labels(trajectory, until)
            if isinstance(found, Attribution):
                await self._judgements.judged(key, trajectory, found)
        finally:
            self._flying.pop(key).set()
        return found

    async def _ask_blind(self, trajectory: Trajectory, until: float) -> None:
        """Show the judge a trajectory without its outcome, if that is verified: no labels, but evidence of how good its
        labels are. It holds nothing up: where the judge is away or has no budget left, there is none."""
        if trajectory.outcome is None or not trajectory.steps or chance(trajectory.id, "blind") >= BLIND_SHARE:
            return
        hidden = msgspec.structs.replace(trajectory, outcome=None)
        key = content_hash(self._judge.name, f"{self._judge.rubric} blind", hidden)
        await self._judgements.look_up([key])
        if self._judgements.found(key):
            return
        try:
            found = await self.asking.once(hidden, until)
        except DependencyUnavailable:
            return
        if isinstance(found, Attribution):
            self.stats.observe(found, trajectory, good=trajectory.outcome >= SUCCESS)
            await self._judgements.judged(key, trajectory, found)

    def _settled(self, trajectory: Trajectory, found: Attribution | Refusal, cached: bool) -> Attribution:
        """Count what became of a trajectory, and give its labels their weight."""
        reason: Reason | None = None
        if isinstance(found, Refusal):
            reason, why = found.reason, found.detail if found.reason in _OURS else f"judge failed: {found.detail}"
            labels = (StepLabel("ABSTAIN", 0.0, why[:200]),) * len(trajectory.steps)
            found = Attribution(labels=labels, judge=self._judge.name, rubric=self._judge.rubric)
        elif found.judge == FEEDBACK:
            self.counts["told"] += 1
            return found
        elif silent(found) and found.labels:
            reason = "judge"
        self.counts[f"abstained_{reason}" if reason else "cached" if cached else "judged"] += 1
        weight = self.stats.weight(found.judge, found.rubric, trajectory.tenant)
        return msgspec.structs.replace(found, weight=weight)

    def _overruled(self, attribution: Attribution, told: Mapping[int, StepLabel]) -> Attribution:
        if not told:
            return attribution
        self.counts["told_steps"] += len(told)
        labels, weight = attribution.labels, attribution.weight
        if weight < 1.0:
            # A weight is the trajectory's, and reports have the full one: the judge is not heard on the other steps.
            labels = (StepLabel("ABSTAIN", 0.0, f"judge's weight {weight:.2f}, beside feedback"),) * len(labels)
        labels = tuple(told.get(number, label) for number, label in enumerate(labels))
        return msgspec.structs.replace(attribution, labels=labels, weight=1.0)

    async def _told(self, trajectories: Sequence[Trajectory]) -> Told:
        """Labels by trajectory and step, as reported; of several reports on a step the last counts."""
        if self._store is None or not trajectories:
            return {}
        said = await self._store.step_feedback(trajectories)
        return {key: {number: label_of(feedback) for number, feedback in found} for key, found in said.items()}


def worth(trajectory: Trajectory, share: float) -> bool:
    """Whether a judge is to see it: failures always, of the rest a `share`; the same one always fares the same."""
    failed = trajectory.outcome is not None and trajectory.outcome < SUCCESS
    return failed or chance(trajectory.id, "sampling") < share


def label_of(feedback: Feedback) -> StepLabel:
    """The label that a report on a step is; who says neither good nor bad is not overruled by a judge."""
    outcome = 0.5 if feedback.outcome is None else feedback.outcome
    label = "GOOD" if outcome > 0.5 else "BAD" if outcome < 0.5 else "ABSTAIN"
    reason = f"feedback: {feedback.text}" if feedback.text.strip() else "feedback"
    return StepLabel(label, abs(2.0 * outcome - 1.0), reason[:200])
