"""`JudgementCache`: what must not be forgotten: judgements by content, what they cost, and what is known of the judge.

Written together, in one transaction, every few seconds while a batch is judged and at its end: a process that is killed
has forgotten no more than those seconds. Kept by the store; without one, in memory alone.
"""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from actors.credit.budget import Budget
from actors.credit.judge_stats import PREFIX, JudgeStats
from actors.messages import Attribution, Trajectory
from actors.messages.bounded import Bounded
from actors.store import Store
from actors.store.judgements import Bounds, Judgement

BUDGET = "attributor.budget"
"""State key of what was spent."""
_DAYS = 30.0
"""Since a judgement was last used: what has not come again in a month will not."""
_WRITE_SECONDS = 2.0
"""Longest time for which judgements and costs are in memory alone while a batch is judged."""
_AT_HAND = 4096
"""Judgements in memory beside the store's."""
_ENTRIES = 100_000
"""Judgements that the store keeps, so that the same trajectory is not paid for twice; the least recently used go
first."""
_log = structlog.get_logger(__name__)


class JudgementCache:
    """One attributor's; without a `memory` all is forgotten with the process. The budget is kept along."""

    def __init__(self, budget: Budget, memory: Store | None, clock: Callable[[], float]) -> None:
        self.stats = JudgeStats(clock)
        self._budget, self._memory, self._clock = budget, memory, clock
        self._known: Bounded[str, Attribution] = Bounded(_AT_HAND)
        self._fresh: dict[str, Judgement] = {}
        self._used: set[str] = set()
        self._unclaimed: set[str] = set()
        self._costs = False
        self._written = clock()
        self._added = 0

    async def open(self) -> None:
        """Read what an earlier life wrote; what cannot be read is told of and begun anew."""
        if self._memory is None:
            return
        kept = await self._memory.states(PREFIX)
        spent = await self._memory.states(BUDGET)
        try:
            self.stats.load(kept.values())
            if BUDGET in spent:
                self._budget.load(spent[BUDGET])
        except msgspec.DecodeError as error:
            _log.error("attributor_state_unreadable", reason=str(error))

    async def look_up(self, keys: Sequence[str]) -> None:
        """Fetch those judgements that there are, for `found`."""
        missing = [key for key in keys if key not in self._known]
        if self._memory is None or not missing:
            return
        for key, body in (await self._memory.judgements(missing)).items():
            self._known[key] = msgspec.msgpack.decode(body, type=Attribution)

    def let_go(self) -> None:
        """Have no judgement in memory that the store has, or had."""
        self._known.clear()

    def found(self, key: str) -> Attribution | None:
        """The judgement of this content, if it has been looked up and there is one."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            self._used.add(key)
        return known

    def judged(self, key: str, trajectory: Trajectory, attribution: Attribution) -> None:
        """Keep a new judgement. Abstentions are not kept: their cause may have passed by the next time."""
        if any(label.label != "ABSTAIN" for label in attribution.labels):
            self._known[key] = attribution
            body = msgspec.msgpack.encode(attribution)
            self._fresh[key] = Judgement(key=key, tenant=trajectory.tenant, body=body)
        self._unclaimed.add(key)

    def claim(self, key: str) -> bool:
        """Whether the judgement was made for the trajectory that asks; the next one to ask has it from the cache."""
        if key in self._unclaimed:
            self._unclaimed.remove(key)
            return True
        return False

    def spent(self, trajectory: Trajectory, attribution: Attribution) -> None:
        """An answer cost this much."""
        if attribution.tokens or attribution.cost:
            self._costs = True
            for page in self.stats.pages(attribution.judge, attribution.rubric, trajectory.tenant):
                page.tokens += attribution.tokens
                page.money += attribution.cost

    async def write_if_due(self) -> None:
        """Write if the last time is long ago."""
        if self._clock() - self._written >= _WRITE_SECONDS:
            await self.write()

    async def write(self) -> None:
        """Write what is new."""
        self._written = self._clock()
        self.stats.settle()
        if self._memory is None:
            self._fresh.clear()
            self._used.clear()
            return
        # Taken out first: a batch that is judged meanwhile may add to them.
        fresh, used, pages, costs = self._fresh, self._used, self.stats.take(), self._costs
        if not (fresh or used or pages or costs):
            return
        self._fresh, self._used, self._costs = {}, set(), False
        states = {**pages, **({BUDGET: self._budget.dump()} if costs else {})}
        try:
            await self._memory.keep_judgements(list(fresh.values()), sorted(used - fresh.keys()), states)
            self._added += len(fresh)
            if self._added > _ENTRIES // 16:
                self._added = 0
                await self._memory.bound_judgements(Bounds(entries=_ENTRIES, seconds=_DAYS * 86_400.0))
        except BaseException:
            self._fresh = fresh | self._fresh
            self._used |= used
            self._costs = self._costs or costs
            self.stats.put_back(pages)
            raise
