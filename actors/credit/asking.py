"""`Asking`: one question to the judge, within what it may take, what it may cost, and how often it may fail.

An answer is labels, or the reason why there are none. `DependencyUnavailable` means: nothing is decided, come again
later; so it is while the judge is away. It is away after `_IN_A_ROW` questions that nobody answered; then one question
at a time finds out whether it is back, and the next one waits for `_PAUSE`.
"""

from typing import Literal

import anyio
import msgspec
import structlog

from actors.credit.judge_stats import JudgeStats
from actors.messages import Attribution, Trajectory
from actors.messages.bounded import Bounded
from actors.ports.errors import ModelUnavailable
from actors.ports.models import Judge
from actors.system.errors import DependencyUnavailable

Reason = Literal["budget", "timeout", "error", "labels", "judge", "not_sampled"]
"""Why no step has a label. `labels`: not one a step; `judge`: the judge itself abstained on all of them."""
ATTEMPTS = 3
"""Times that a trajectory is shown to a judge that fails, before its steps abstain."""
TIMEOUT = 120.0
"""Seconds that one judgement may take."""
_IN_A_ROW = 3
"""No more than the attempts at a trajectory: none is used up on a judge that is away."""
_PAUSE = 100.0
"""Seconds."""
_PROBE = 0.01
"""What a question that timed out counts as an attempt, where the judge was away before; a hundred take six hours. Not
nothing: a judge that hangs on this trajectory alone would be asked about it for ever."""
_REMEMBERED = 4096
_log = structlog.get_logger(__name__)


class Refusal(msgspec.Struct, frozen=True):
    """No labels."""

    reason: Reason
    detail: str
    attempts: float = 1.0
    """What it counts as; of what is remembered of a trajectory, all of them."""


class Asking:
    """Asks one judge, `concurrency` questions at once, about each trajectory ATTEMPTS times at most."""

    def __init__(self, judge: Judge, stats: JudgeStats, concurrency: int) -> None:
        self.judge, self._stats = judge, stats
        self._slots = anyio.CapacityLimiter(concurrency)
        self._tries: Bounded[str, Refusal] = Bounded(_REMEMBERED)
        self._unanswered, self._again = 0, 0.0

    @property
    def away(self) -> bool:
        """The judge does not answer."""
        return self._unanswered >= _IN_A_ROW

    async def labels(self, trajectory: Trajectory, until: float) -> Attribution | Refusal:
        """The judge's labels, one a step, or why there are none; how often it failed is remembered until `settled`. No
        question is begun after `until` (anyio's time)."""
        last = self._tries.get(trajectory.id)
        while last is None or last.attempts < ATTEMPTS:
            found = await self.once(trajectory, until)
            if isinstance(found, Attribution) or found.reason == "budget":
                return found
            tries = found.attempts + (last.attempts if last else 0.0)
            last = self._tries[trajectory.id] = msgspec.structs.replace(found, attempts=tries)
            _log.warning("judge_failed", trajectory=trajectory.id, attempt=tries, reason=found.detail[:200])
        return last

    def settled(self, trajectory_id: str) -> None:
        """The trajectory is done with."""
        self._tries.pop(trajectory_id, None)

    async def once(self, trajectory: Trajectory, until: float) -> Attribution | Refusal:
        """One question."""
        async with self._slots:
            now = anyio.current_time()
            if now >= until:
                raise DependencyUnavailable(f"judge {self.judge.name} is slow; the rest of the batch is asked for next")
            if spent := self._stats.used_up():
                return Refusal("budget", f"budget of {spent} is spent")
            if self.away and now < self._again:
                raise DependencyUnavailable(f"judge {self.judge.name} is away; it is asked now and then")
            return await self._ask(trajectory)

    async def _ask(self, trajectory: Trajectory) -> Attribution | Refusal:
        probe = self.away
        self._again = anyio.current_time() + TIMEOUT  # nobody else finds out at the same time
        try:
            with anyio.fail_after(TIMEOUT):
                found = await self.judge.label(trajectory)
            self._stats.spent(found, trajectory.tenant)
            if len(found.labels) != len(trajectory.steps):
                found = Refusal("labels", f"{len(found.labels)} labels for {len(trajectory.steps)} steps")
        except ModelUnavailable as error:
            self._missed()
            raise DependencyUnavailable(f"judge {self.judge.name}: {error}") from error
        except TimeoutError:
            # One hard trajectory may take too long, and so does a judge that hangs.
            self._missed()
            return Refusal("timeout", f"no answer in {TIMEOUT:g} s", _PROBE if probe else 1.0)
        # Whatever a judge of any origin raises, it must not cost us the trajectory.
        except Exception as error:
            found = Refusal("error", f"{type(error).__name__}: {error}")
        self._unanswered = 0
        return found

    def _missed(self) -> None:
        self._unanswered += 1
        self._again = anyio.current_time() + _PAUSE
