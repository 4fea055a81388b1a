"""The mixture: which share of a round's tasks was made here, and which of these are worth playing.

    store's pool -> [mixture] -> rollout: tasks, how far their advantages count
                        <- what came of each: set aside, tried again later, retired

A policy that trains on tasks of its own making alone drifts towards them, so they are a share of each round, and their
advantages are scaled (AgentEvolver, arXiv 2511.10395, section 3: 0.5). Tasks of the environment that a failure pointed
to are real ones: they count fully. Clusters go by the curriculum's index; of a cluster the task that promises most. A
task whose attempts all end alike, or are lost, is set aside, tried again ever later and then retired. Where no attempt
succeeded, the same task told more openly goes into the pool beside it (`rewriting`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from actors.curation.curriculum import Curriculum, slots
from actors.rollout.task_source import Play
from actors.statistics.beta_posterior import BetaPosterior
from actors.store import Store
from actors.store.tasks import TaskState
from actors.tasks.rewriting import easier

_log = structlog.get_logger(__name__)
_PLAYED = ("offered", "active", "set_aside")
_SUCCESS = 0.5
_ALL_FAIL = "no attempt succeeds"
_ATTEMPTS = 8.0
"""Attempts after which a task's turn comes half as often."""

_AGREEING = 2
"""Rounds in a row whose attempts all end alike before a task is set aside."""
_LOSSES = 2
"""Rounds in a row without any outcome before a task is set aside."""
_RETRY_SECONDS = 600.0
"""Until a task that was set aside is tried again; each time twice as long."""
_RETRIES = 3
"""Times that it is tried again before it is retired."""
_SCALE = 0.5
"""Factor of the advantages of self-made tasks, for nobody outside wrote them; tasks of the environment that failures
pointed to have 1."""


class Mixture:
    """Draws tasks of the pool, and notes what came of them."""

    def __init__(self, share: float, *, book: Store, curriculum: Curriculum, clock: Callable[[], float]) -> None:
        """`share` of a round's tasks, while there are enough; 0 for none."""
        self._share, self._book, self._curriculum, self._clock = share, book, curriculum, clock
        self._flying: dict[str, TaskState] = {}
        self.counts: Counter[str] = Counter()
        """Tasks that were drawn, by origin; short: of a round's share, for want of tasks; set_aside, returned (from
        there), retired, eased."""

    async def draw(self, count: int) -> list[Play]:
        """Tasks for a round of `count`, no more than their share; nobody else gets them until `report`."""
        wanted = slots(self._share, count)
        if not wanted:
            return []
        states = await self._book.task_states(_PLAYED)
        chosen = self._choose([one for one in states if self._ready(one)], wanted)
        self.counts["short"] += wanted - len(chosen)
        plays: list[Play] = []
        for state in chosen:
            self._flying[state.task.id] = state
            self.counts[state.task.origin] += 1
            self.counts["returned"] += state.state == "set_aside"
            scale = 1.0 if state.task.origin == "environment" else _SCALE
            # `lost` only starts again when `tried` has grown: no two rounds have both.
            plays.append(Play(state.task, f"{state.task.id}/{state.tried}/{state.lost}", scale))
        return plays

    def _ready(self, state: TaskState) -> bool:
        due = state.state != "set_aside" or state.again <= self._clock()
        return due and state.task.id not in self._flying

    def _choose(self, ready: Sequence[TaskState], wanted: int) -> list[TaskState]:
        """The next slot is the cluster's whose index over the slots that it would then have is highest (D'Hondt)."""
        queues: dict[str, list[TaskState]] = {}
        for state in sorted(ready, key=_turn):  # stable: among equals, those that were played longest ago
            queues.setdefault(self._curriculum.kind(state.task.goal), []).append(state)
        index: Mapping[str, float] = {name: self._curriculum.index(name) for name in queues}
        taken: Counter[str] = Counter()
        chosen: list[TaskState] = []
        while len(chosen) < wanted and queues:
            best = min(queues, key=lambda name: (-index[name] / (1 + taken[name]), name))
            chosen.append(queues[best].pop(0))
            taken[best] += 1
            if not queues[best]:
                del queues[best]
        return chosen

    async def report(self, task_id: str, outcomes: Sequence[float], *, blamed: bool = True) -> None:
        """Note what came of a task; of one that was not drawn here, nothing. May be said again until it is written.

        Args:
            outcomes: of those attempts that had one.
            blamed: whether it is the task's fault if none had.
        """
        state = self._flying.get(task_id)
        if state is not None and (outcomes or blamed):
            after = judged(state, outcomes, self._clock())
            eased = easier(state.task) if after.state != "active" and after.reason == _ALL_FAIL else None
            await self._book.mark_tasks([after])
            self.counts["eased"] += await self._book.offer([eased]) if eased is not None else 0
            if after.state != "active":
                self.counts[after.state] += 1
                _log.info("task_put_away", task=task_id, state=after.state, reason=after.reason)
        self._flying.pop(task_id, None)

    def release(self) -> None:
        """Forget what was drawn and never reported: its rounds were cut off."""
        self._flying.clear()


def estimate_of(state: TaskState) -> BetaPosterior:
    """What is believed of the policy's success at a task."""
    return BetaPosterior(state.successes, state.failures)


def _turn(state: TaskState) -> float:
    """Where a task stands among those of its cluster: what it promises to teach, less for each attempt at it so far."""
    return -estimate_of(state).promise / (1.0 + state.tried / _ATTEMPTS)


def judged(state: TaskState, outcomes: Sequence[float], now: float) -> TaskState:
    """`state` after a round with these outcomes."""
    solved = sum(outcome >= _SUCCESS for outcome in outcomes)
    # One attempt agrees with itself, which says nothing.
    estimate = estimate_of(state).after(outcomes)
    agreed = state.agreed + (len(outcomes) > 1) if len(set(outcomes)) == 1 else 0
    after = msgspec.structs.replace(
        state, state="active", reason="", tried=state.tried + len(outcomes), solved=state.solved + solved, last=now,
        successes=estimate.successes, failures=estimate.failures,
        agreed=agreed if outcomes else state.agreed, lost=0 if outcomes else state.lost + 1,
    )  # fmt: skip
    if after.lost:
        return _put_away(after, after.lost - _LOSSES, "every attempt is lost", now)
    return _put_away(
        after, after.agreed - _AGREEING, "every attempt succeeds" if solved else _ALL_FAIL,
        now,
    )  # fmt: skip


def _put_away(state: TaskState, times: int, reason: str, now: float) -> TaskState:
    """`state` put away for the (`times` + 1)th time; as it is if `times` is below 0."""
    if times < 0:
        return state
    if times >= _RETRIES:
        return msgspec.structs.replace(state, state="retired", reason=reason)
    again = now + _RETRY_SECONDS * 2.0**times
    return msgspec.structs.replace(state, state="set_aside", reason=reason, again=again)
