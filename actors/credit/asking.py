"""`Asking`: one question to the judge, within what it may take, what it may cost, and how often it may fail.

An answer is labels, or the reason why there are none. `DependencyUnavailable` means: nothing is decided, come again
later; so it is while the judge is away.
"""

from collections.abc import Callable
from typing import Literal

import anyio
import msgspec
import structlog

from actors.credit.breaker import Breaker
from actors.credit.budget import Budget
from actors.messages import Attribution, Trajectory
from actors.messages.bounded import Bounded
from actors.ports.errors import JudgeUnavailable
from actors.ports.judges import Judge
from actors.system.errors import DependencyUnavailable

Reason = Literal["budget", "timeout", "error", "labels", "judge", "not_sampled"]
"""Why no step has a label. `labels`: not one a step; `judge`: the judge itself abstained on all of them."""
ATTEMPTS = 3
"""Times that a trajectory is shown to a judge that fails, before its steps abstain."""
TIMEOUT = 120.0
"""Seconds that one judgement may take."""
PROBE = 0.1
"""What a probe that timed out counts as an attempt at its trajectory. Not nothing: if nobody but this trajectory came,
and the judge hung on it alone, it would be asked for ever."""
_REMEMBERED = 4096
_log = structlog.get_logger(__name__)


class Refusal(msgspec.Struct, frozen=True):
    """No labels."""

    reason: Reason
    detail: str
    probe: bool = False
    """It was asked to see whether a judge that is away is back: that says little of the trajectory."""


class _Tries(msgspec.Struct):
    count: float = 0.0
    last: Refusal = Refusal("error", "")


class Asking:
    """Asks one judge, `concurrency` questions at once, about each trajectory ATTEMPTS times at most."""

    def __init__(
        self, judge: Judge, *, budget: Budget, breaker: Breaker, concurrency: int,
        spent: Callable[[Trajectory, Attribution], None],
    ) -> None:  # fmt: skip
        self.judge, self.budget, self.breaker = judge, budget, breaker
        self._spent = spent
        self._slots = anyio.CapacityLimiter(concurrency)
        self._tries: Bounded[str, _Tries] = Bounded(_REMEMBERED)

    async def labels(self, trajectory: Trajectory, until: float = float("inf")) -> Attribution | Refusal:
        """The judge's labels, one a step, or why there are none.

        How often a trajectory failed is remembered if the actor is interrupted in between: a judge that only ever hangs
        on this one is not asked about it for ever.

        Args:
            until: no question is begun after this time (anyio's).
        """
        tries = self._tries[trajectory.id] = self._tries.get(trajectory.id) or _Tries()
        while tries.count < ATTEMPTS:
            found = await self.once(trajectory, until)
            if isinstance(found, Attribution) or found.reason == "budget":
                self._tries.pop(trajectory.id, None)
                return found
            tries.count, tries.last = tries.count + (PROBE if found.probe else 1.0), found
            _log.warning("judge_failed", trajectory=trajectory.id, attempt=tries.count, reason=found.detail[:200])
        return tries.last

    def settled(self, trajectory_id: str) -> None:
        """The trajectory is done with."""
        self._tries.pop(trajectory_id, None)

    async def once(self, trajectory: Trajectory, until: float = float("inf")) -> Attribution | Refusal:
        """One question."""
        async with self._slots:
            if anyio.current_time() >= until:
                raise DependencyUnavailable(f"judge {self.judge.name} is slow; the rest of the batch is asked for next")
            return await self._ask(trajectory)

    async def _ask(self, trajectory: Trajectory) -> Attribution | Refusal:
        spent = self.budget.used_up()
        if spent:
            return Refusal("budget", f"budget of {spent} is spent")
        probe = self.breaker.open
        if not self.breaker.allows():
            wait = self.breaker.remaining()
            raise DependencyUnavailable(f"judge {self.judge.name} is away; it is asked again in {wait:.0f} s")
        self.budget.begin()
        cost, told = (0.0, 0.0), False
        try:
            try:
                with anyio.fail_after(TIMEOUT):
                    attribution = await self.judge.label(trajectory)
            except JudgeUnavailable as error:
                told = True
                self.breaker.missed()
                raise DependencyUnavailable(f"judge {self.judge.name}: {error}") from error
            except TimeoutError:
                told = True
                # One hard trajectory may take too long, and so does a judge that hangs.
                self.breaker.missed()
                return Refusal("timeout", f"no answer in {TIMEOUT:g} s", probe)
            # Whatever a judge of any origin raises, it must not cost us the trajectory.
            except Exception as error:
                told = True
                self.breaker.answered()
                return Refusal("error", f"{type(error).__name__}: {error}")
            told = True
            self.breaker.answered()
            cost = float(attribution.tokens), attribution.cost
            self._spent(trajectory, attribution)
            if len(attribution.labels) != len(trajectory.steps):
                return Refusal("labels", f"{len(attribution.labels)} labels for {len(trajectory.steps)} steps")
            return attribution
        finally:
            self.budget.end(*cost)
            if not told:
                self.breaker.dropped()
