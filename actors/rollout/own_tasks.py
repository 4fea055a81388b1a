"""The environment's own tasks: numbers that count up, of the kinds that are planned, none of them twice.

The planner says how many of each kind of goal a round should have, of those that are within reach: numbers that were
looked at wait until their kind is planned, and what came among the last numbers that were looked at will come among the
next. So looking ahead uses up no task, and hardly anything is planned that cannot be had. What a plan asks for in vain
is taken as it came.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from heapq import nsmallest

import msgspec
import structlog
from anyio.lowlevel import checkpoint

from actors.curation.curriculum import Curriculum
from actors.ports.environments import Environment
from actors.ports.errors import AdapterError
from actors.store import Store

_log = structlog.get_logger(__name__)
_NEXT = "rollout/next"
"""Number of the next task, and those before it that wait, in JSON."""
WAITING = 4096
"""Numbers that wait. Beyond, the oldest of the kind of which most wait is let go: who wants for ever what the
environment seldom has cannot play all the rest of it."""
_ASKED = 256
"""Numbers that wait of which the kind is asked again a round: it changes while goals become known."""
_AT_ONCE = 16
"""Of them, about so many between two breaths of the event loop."""
_LONGEST = 2000
"""Characters of a goal that say what kind it is."""


class _Waiting(msgspec.Struct):
    """A number that was looked at."""

    goal: str | None
    """None: to be looked at again, after a restart or where the environment did not answer."""
    kind: str = ""
    asked: int = -1
    """Round in which its kind was asked."""


class OwnTasks:
    """Numbers of training tasks."""

    def __init__(
        self,
        *,
        store: Store,
        environment: Environment,
        planner: Curriculum | None,
        families: str | None,
        first: int,
        lookahead: int,
    ) -> None:
        """
        Args:
            families: kinds of task; None for the environment's usual mix.
            first: number of the first task of a fresh store.
            lookahead: numbers looked at for each task.
        """
        self._store, self._environment, self._planner = store, environment, planner
        self._families, self._first, self._lookahead = families, first, max(1, lookahead)
        self._next = first
        self._round = 0
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()
        self._seen: deque[str] = deque(maxlen=1)
        """Goals of the numbers that were looked at last, as many as a round looks at: what comes, not what is left."""
        self.counts: Counter[str] = Counter()
        """planned: tasks that a plan asked for by kind; unplanned: those of them that were taken as they came, because
        none of their kind was within reach; let_go: numbers that were looked at and will never be played."""

    @property
    def waiting(self) -> int:
        """Numbers that were looked at and wait for their kind to be planned."""
        return len(self._waiting)

    async def start(self) -> None:
        """Go on where the last process was."""
        data = await self._store.state_get(_NEXT)
        self._next, self._waiting = self._first, OrderedDict()
        if data is None:
            return
        try:
            saved = msgspec.json.decode(data, type=int | tuple[int, list[int]])
        except msgspec.DecodeError as error:
            _log.warning("task_numbers_unreadable", error=str(error), bytes=len(data), first=self._first)
            return
        self._next, waiting = (saved, []) if isinstance(saved, int) else saved
        self._waiting.update((number, _Waiting(None)) for number in waiting)

    async def take(self, count: int) -> list[int]:
        """The next `count` numbers that fit the plan, which nobody gets again, whatever becomes of them."""
        if count < 1:
            return []
        numbers = await self._choose(count, self._planner) if self._planner is not None else self._new(count)
        await self._store.state_put(_NEXT, msgspec.json.encode((self._next, list(self._waiting))))
        return sorted(numbers)

    def _new(self, count: int) -> list[int]:
        """The next numbers, whatever they are."""
        self._next += count
        return list(range(self._next - count, self._next))

    async def _choose(self, count: int, planner: Curriculum) -> list[int]:
        reach = count * self._lookahead
        if self._seen.maxlen != reach:
            self._seen = deque(self._seen, maxlen=reach)
        self._look_ahead(reach - len(self._seen), lambda one: False)
        await self._ask_again(planner, reach)
        plan = Counter(planner.plan(count, self._within_reach(planner)))
        planned = plan.total()
        # The environment's choice is what comes, not what plans left over.
        chosen = self._new(max(0, count - planned))
        self._saw(*map(self._look, chosen))
        for number, one in list(self._waiting.items()):
            if plan[one.kind] > 0 and self._fits(one, plan, planner):
                del self._waiting[number]
                chosen.append(number)
        chosen += self._look_ahead(reach, lambda one: self._fits(one, plan, planner), count - len(chosen))
        missing = [self._waiting.popitem(last=False)[0] for _ in range(min(count - len(chosen), len(self._waiting)))]
        missing += self._new(count - len(chosen) - len(missing))
        self.counts.update(planned=planned, unplanned=len(missing))
        self._let_go()
        self._round += 1
        return chosen + missing

    def _look_ahead(self, reach: int, taken: Callable[[_Waiting], bool], wanted: int = 1) -> list[int]:
        """At most `wanted` of the next `reach` numbers, those that are `taken`; the others wait."""
        chosen: list[int] = []
        failed = 0
        for _ in range(reach):
            # An environment that does not answer is not asked for every number there is.
            if len(chosen) >= wanted or failed >= self._lookahead:
                break
            (number,) = self._new(1)
            one = _Waiting(self._look(number))
            self._saw(one.goal)
            failed = failed + 1 if one.goal is None else 0
            if taken(one):
                chosen.append(number)
            else:
                self._waiting[number] = one
        return chosen

    def _within_reach(self, planner: Curriculum) -> Counter[str]:
        """Tasks by kind that can be had: those that wait, and half of what came among the last numbers, for chance."""
        come = Counter(map(planner.kind, self._seen))
        wait = Counter(one.kind for one in self._waiting.values() if one.goal is not None)
        return +Counter({kind: wait[kind] + come[kind] // 2 for kind in come.keys() | wait.keys()})

    def _fits(self, one: _Waiting, plan: Counter[str], planner: Curriculum) -> bool:
        """Whether it is of a planned kind; if so, it is counted as had."""
        if one.goal is None:
            return False
        one.kind, one.asked = planner.kind(one.goal), self._round
        if plan[one.kind] < 1:
            return False
        plan[one.kind] -= 1
        return True

    async def _ask_again(self, planner: Curriculum, reach: int) -> None:
        looked = failed = 0
        for number, waiting in nsmallest(_ASKED, self._waiting.items(), key=lambda item: (item[1].asked, item[0])):
            if not number % _AT_ONCE:
                await checkpoint()
            if waiting.goal is None and looked < reach and failed < self._lookahead:
                waiting.goal = self._look(number)
                looked, failed = looked + 1, failed + 1 if waiting.goal is None else 0
            if waiting.goal is not None:
                waiting.kind = planner.kind(waiting.goal)
            waiting.asked = self._round

    def _let_go(self) -> None:
        while len(self._waiting) > WAITING:
            ((most, _),) = Counter(one.kind for one in self._waiting.values()).most_common(1)
            del self._waiting[next(number for number, one in self._waiting.items() if one.kind == most)]
            self.counts["let_go"] += 1

    def _look(self, number: int) -> str | None:
        try:
            return self._environment.sample(number, "train", self._families).goal[:_LONGEST]
        except (AdapterError, ValueError):
            # Its turn to fail, and to be counted, is when it is played.
            return None

    def _saw(self, *goals: str | None) -> None:
        self._seen.extend(goal for goal in goals if goal is not None)
