"""What the curator notes for people: its agents' runs, and how fast runs, outcomes and updates come.

Everything here is told by the curator as it happens. What the books have (updates, freezes, runs under way) is told
again after a restart; the rest is saved, at most once a minute.
"""

from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from actors.curation.agents import Agent, AgentLedger
from actors.messages import Attributed, BatchOrder, Candidate, Directive, Serving
from actors.store.records import Dropped

SAVE_SECONDS = 60.0
_TIMES = 64
"""Arrivals that a rate is taken from."""
_UPDATES = 16
"""Updates that the usual time of one is taken from."""


class _Saved(msgspec.Struct):
    agents: dict[str, Agent]
    reported: list[float]
    runs: list[float]
    played: list[float]
    seconds: list[float]
    since: float
    first_report: float
    asked: float


class Watch:
    """Bounded; pure: times are given."""

    def __init__(self, now: float) -> None:
        self.agents = AgentLedger()
        self.since = now
        """Unix seconds: nothing is known of what was before."""
        self.runs: deque[float] = deque(maxlen=_TIMES)
        """When production's newest runs came, unix seconds."""
        self.reported: deque[float] = deque(maxlen=_TIMES)
        """When the newest came that have an outcome and may be trained on, or their outcome."""
        self.played: deque[float] = deque(maxlen=_TIMES)
        """When the sandbox's newest came."""
        self.first_report = 0.0
        """When an outcome came first, whatever of; 0: never."""
        self.seconds: deque[float] = deque(maxlen=_UPDATES)
        """From an order to its version."""
        self.updated = self.swapped = self.answered = self.thawed = 0.0
        """When there last was a new version, a swap, any answer to an order, an order to go on; 0: never."""
        self.asked = 0.0
        """When the first order was given that the learner has not answered, given up or not; 0: it answered all."""
        self.version = -1
        """The last one that was trained."""
        self.skipped_orders = 0
        """Orders answered without an update since the last one."""
        self.skipped: Counter[str] = Counter()
        """Their runs, by reason."""
        self.skipped_since = 0.0
        self.frozen_since = 0.0
        """When learning was frozen; 0: it is not."""
        self.frozen_reason = ""
        self._saved = b""
        self._saved_at = float("-inf")

    def seen(self, item: Attributed, now: float, *, exam: bool) -> None:
        """A run, or its outcome, has come."""
        run = item.trajectory
        new = self.agents.seen(run, now)
        if run.source == "sandbox" and new:
            self.played.append(now)
        if run.source != "production":
            return
        if new:
            self.runs.append(now)
        if run.outcome is not None:
            self.first_report = self.first_report or now
            if run.trainable and not exam:
                self.reported.append(now)

    def again(self, item: Attributed, now: float) -> None:
        """A run that was under way before the restart."""
        # It is not now that its agent was at work.
        self.agents.seen(item.trajectory, min(item.trajectory.ended, now))
        if item.trajectory.source == "production" and item.trajectory.outcome is not None:
            self.first_report = self.first_report or now

    def dropped(self, drops: Sequence[Dropped], now: float) -> None:
        """They will never be ordered."""
        for one in drops:
            self.agents.dropped(one.id, one.reason, now)

    def order(self, order: BatchOrder) -> None:
        """An order is out."""
        self.agents.ordered(order.trajectories)
        self.asked = self.asked or order.created

    def answer(self, candidate: Candidate, order: BatchOrder | None, now: float) -> None:
        """The learner has said something.

        Args:
            order: the one that it answers; None: it is none of ours, or of the books.
        """
        if candidate.answer == "trained":
            if candidate.created > self.updated:
                self.updated, self.version = candidate.created, candidate.version
            self._moves()
        elif candidate.answer != "went_back":
            self.skipped_orders += 1
            self.skipped_since = self.skipped_since or candidate.created
            self.skipped.update(candidate.no_gradient.values())
        if candidate.answer != "went_back":
            self.answered = max(self.answered, candidate.created)
            # By our clock where it is ours, by the learner's where the books tell of it.
            if order is not None or candidate.created >= self.asked:
                self.asked = 0.0
        if order is None:
            return
        if candidate.answer == "trained":
            self.seconds.append(max(0.0, now - order.created))
        default = "" if candidate.answer == "trained" else candidate.answer
        self.agents.answered(order.trajectories, candidate.no_gradient, default, now)

    def _moves(self) -> None:
        self.skipped_orders, self.skipped_since = 0, 0.0
        self.skipped.clear()

    def given_up(self, order: BatchOrder, now: float) -> None:
        """Nobody answered `order`."""
        self.agents.answered(order.trajectories, {}, "given up", now)

    def serves(self, serving: Serving) -> None:
        """An engine has other weights."""
        if serving.result == "swapped":
            self.swapped = max(self.swapped, serving.since)

    def ordered(self, directive: Directive) -> None:
        """Somebody stopped learning, or let it go on."""
        if directive.kind == "freeze" and not self.frozen_since:
            self.frozen_since, self.frozen_reason = directive.created, directive.reason
        elif directive.kind == "thaw":
            self.frozen_since, self.frozen_reason, self.thawed = 0.0, "", directive.created

    def load(self, data: bytes | None) -> None:
        """Take over what was saved, unless we saved it ourselves: then we know more. Runs under way and the learner's
        answers are told again, from the books."""
        self.agents.forget_under_way()
        self._moves()
        if not data or data == self._saved:
            return
        try:
            saved = msgspec.msgpack.decode(data, type=_Saved)
        except msgspec.DecodeError:
            return  # of another release; counting begins anew
        self.agents.load(saved.agents)
        for times, known in (
            (self.reported, saved.reported),
            (self.runs, saved.runs),
            (self.played, saved.played),
            (self.seconds, saved.seconds),
        ):
            times.clear()
            times.extend(known)
        self.since, self.first_report, self.asked = saved.since, saved.first_report, saved.asked
        self._saved = data

    def to_save(self, now: float) -> bytes | None:
        """What `load` takes, if it is time and something has changed."""
        if now - self._saved_at < SAVE_SECONDS:
            return None
        self._saved_at = now
        data = msgspec.msgpack.encode(
            _Saved(
                agents=self.agents.save(now),
                reported=list(self.reported),
                runs=list(self.runs),
                played=list(self.played),
                seconds=list(self.seconds),
                since=self.since,
                first_report=self.first_report,
                asked=self.asked,
            )
        )
        if data == self._saved:
            return None
        self._saved = data
        return data
