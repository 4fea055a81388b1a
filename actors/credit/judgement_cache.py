"""`JudgementCache`: judgements by content, kept with what they cost and what is known of the judge.

A judgement that cost something is written when it comes, with what the day has cost; what is known of the judge, when a
batch is done.
"""

import hashlib
from collections.abc import Sequence

import anyio
import msgspec
import structlog

from actors.credit.judge_stats import STATE, JudgeStats
from actors.messages import Attribution, Trajectory
from actors.messages.bounded import Bounded
from actors.store import Store

_AT_HAND = 4096
"""Judgements in memory beside the store's."""
_WRITING = 5.0
"""Seconds for which a batch that is given up still waits until what was paid for is written."""
_log = structlog.get_logger(__name__)


class JudgementCache:
    """One attributor's; without a `memory` all is forgotten with the process."""

    def __init__(self, stats: JudgeStats, memory: Store | None) -> None:
        self._stats, self._memory, self._opened = stats, memory, False
        self._known: Bounded[str, Attribution] = Bounded(_AT_HAND)

    async def open(self) -> None:
        """Read what an earlier life wrote; what cannot be read is told of and begun anew.

        Asked again, it only lets go of the judgements at hand: something may have been forgotten.
        """
        self._known.clear()
        if self._memory is None or self._opened:
            return
        try:
            self._stats.load(await self._memory.states(STATE))
        except msgspec.DecodeError as error:
            _log.error("attributor_state_unreadable", reason=str(error))
        self._opened = True

    async def look_up(self, keys: Sequence[str]) -> None:
        """Fetch those judgements that there are, for `found`."""
        missing = [key for key in keys if key not in self._known]
        if self._memory is not None and missing:
            for key, body in (await self._memory.judgements(missing)).items():
                self._known[key] = msgspec.msgpack.decode(body, type=Attribution)

    def found(self, key: str) -> Attribution | None:
        """The judgement of this content, if it has been looked up and there is one; it has been paid for."""
        return self._known.get(key)

    async def judged(self, key: str, trajectory: Trajectory, attribution: Attribution) -> None:
        """Keep a new judgement. Abstentions are not kept: their cause may have passed by the next time."""
        if silent(attribution):
            return
        self._known[key] = paid = msgspec.structs.replace(attribution, tokens=0, cost=0.0)
        if self._memory is not None and (attribution.tokens or attribution.cost):
            kept = {key: (trajectory.tenant, msgspec.msgpack.encode(paid))}
            with anyio.move_on_after(_WRITING, shield=True):
                await self._memory.keep_judgements(kept, self._stats.costs())

    async def write(self) -> None:
        """Write what is new of the judge. What cannot be written is when the batch, which comes again, writes."""
        news = self._stats.take()
        if self._memory is not None and news:
            await self._memory.keep_judgements({}, news)


def silent(attribution: Attribution) -> bool:
    """Whether no step has a label."""
    return all(label.label == "ABSTAIN" for label in attribution.labels)


def content_hash(judge: str, rubric: str, trajectory: Trajectory) -> str:
    """sha256, hex, of what a judge may look at: goal, tools, steps, outcome, and how the run ended.

    Ids, times and tokens are left out: they differ between runs that say the same. Tenants are kept apart. Shown blind,
    without its outcome, a trajectory is another one.
    """
    steps = [
        (step.text, [(call.name, call.arguments) for call in step.tool_calls], step.observation)
        for step in trajectory.steps
    ]
    seen = (
        judge, rubric, trajectory.tenant, trajectory.goal, trajectory.tools, steps, trajectory.outcome,
        trajectory.closed_by,
    )  # fmt: skip
    return hashlib.sha256(msgspec.msgpack.encode(seen)).hexdigest()
