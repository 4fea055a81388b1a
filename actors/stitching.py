"""Which turns belong together: explicit trajectory ids, echoes of tool-call ids, and the conversation itself.

Nothing here depends on the order of arrival: links are looked up in the set of open turns when a trajectory is about to
close, so that any permutation of the same exchanges and feedback, with duplicates, closes as the same trajectories.

    1. an explicit trajectory id: all turns of the tenant that name it;
    2. a tool call, or a response, that exactly one open turn made and others answer;
    3. else the conversation so far, if exactly one open turn led to it: for answers without tool calls, and for engines
       whose tool-call ids repeat (`call_0`).

A link that could be to either of two turns is no link: a trajectory in two parts costs some credit, one made of two
users' calls is wrong.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import msgspec

from actors.messages import Feedback
from actors.turns import Turn

Key = tuple[str, str, str]
"""(kind, tenant, value); kinds: x exchange, r response, t explicit id, c tool call, h conversation"""
_LOOK_EVERY = 64
_ECHOES = 8
"""Newest tool calls that a turn is linked by: enough to bridge calls that were lost, few enough for long runs."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When trajectories close, and what may be open."""

    idle_seconds: float
    grace_seconds: float
    """From final feedback to closing, for exchanges that are still on their way."""
    max_steps: int
    max_turns: int
    max_bytes: int
    max_feedback: int
    feedback_seconds: float
    """How long feedback waits in memory for its exchange."""
    remembered: int
    """Keys of closed trajectories that are kept to recognise late exchanges."""


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory that is over."""

    turns: tuple[Turn, ...]
    """By start."""
    feedback: tuple[Feedback, ...]
    """By time of receipt."""
    closed_by: str
    confidence: float
    """1 if every turn but the first is linked by ids, less where only the conversation tells, or a part is missing."""


class Stitcher:
    """The open turns, their links, and the feedback that waits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._turns: dict[str, Turn] = {}
        self._arrived: dict[str, float] = {}
        self._makers: dict[Key, set[str]] = {}
        self._takers: dict[Key, set[str]] = {}
        self._feedback: OrderedDict[str, tuple[Feedback, float]] = OrderedDict()
        self._said: dict[Key, set[str]] = {}
        self._alarms: list[tuple[float, str]] = []
        self._closed: OrderedDict[Key, str] = OrderedDict()
        self._ended: dict[Key, float] = {}
        self._repeated: OrderedDict[Key, None] = OrderedDict()
        self._looks = 0
        self.bytes = 0
        self.feedback_evicted = 0
        """Feedback that no exchange claimed in time, or that had to make room; it stays in the store."""

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def waiting(self) -> int:
        """Feedback without its exchange, or whose trajectory is in its grace time."""
        return len(self._feedback)

    def knows(self, turn: Turn) -> bool:
        """Whether the turn, or another one with its response, is here or was."""
        key = _response(turn)
        return turn.id in self._turns or bool(turn.response_id and (key in self._makers or key in self._closed))

    def late_for(self, turn: Turn) -> str:
        """Id of the closed trajectory that `turn` should have been in; empty if it is in time."""
        if turn.explicit:
            key = ("t", turn.tenant, turn.explicit)
            # The same id after the end is a new conversation of a long session.
            return self._closed.get(key, "") if turn.started <= self._ended.get(key, -1.0) else ""
        keys = [key for key in _strong(turn) if key not in self._repeated]
        if any(key in self._makers for key in keys):
            return ""
        return next((self._closed[key] for key in keys if key in self._closed), "")

    def add(self, turn: Turn, now: float) -> bool:
        """Take in a turn; False if it is known."""
        if self.knows(turn):
            return False
        self._turns[turn.id], self._arrived[turn.id] = turn, now
        self.bytes += turn.size
        for key in _made(turn):
            makers = self._makers.setdefault(key, set())
            makers.add(turn.id)
            if len(makers) > 1:
                self._repeat(key)
        for key in _taken(turn):
            self._takers.setdefault(key, set()).add(turn.id)
        self._alarm(now + self._limits.idle_seconds, turn.id)
        if any(feedback.final for feedback in self._heard([turn])):
            self._alarm(now + self._limits.grace_seconds, turn.id)
        return True

    def hear(self, feedback: Feedback, now: float) -> bool:
        """Take in feedback; True if one of its turns is open, else it waits."""
        if feedback.id not in self._feedback:
            self._feedback[feedback.id] = (feedback, now)
            for key in _meant(feedback):
                self._said.setdefault(key, set()).add(feedback.id)
        while len(self._feedback) > self._limits.max_feedback:
            self.forget(next(iter(self._feedback)))
            self.feedback_evicted += 1
        turns = self._meant_turns(feedback)
        if turns and feedback.final:
            self._alarm(now + self._limits.grace_seconds, turns[0])
        return bool(turns)

    def closed_for(self, feedback: Feedback) -> str:
        """Id of the closed trajectory that `feedback` means, if it is remembered."""
        return next((self._closed[key] for key in _meant(feedback) if key in self._closed), "")

    def forget(self, feedback_id: str) -> None:
        """The feedback found its place elsewhere."""
        found = self._feedback.pop(feedback_id, None)
        for key in _meant(found[0]) if found else ():
            _discard(self._said, key, feedback_id)

    def claim(self, turn: Turn) -> list[Feedback]:
        """Take out the feedback that waited for `turn`, which will not be added."""
        claimed = self._heard([turn])
        for feedback in claimed:
            self.forget(feedback.id)
        return claimed

    def close_due(self, now: float) -> list[Closing]:
        """Close what is due: final feedback, idleness, too many steps, too much open."""
        closings: list[Closing] = []
        while self._alarms and self._alarms[0][0] <= now:
            _, turn_id = heapq.heappop(self._alarms)
            if turn_id not in self._turns:
                continue
            members = self._component(turn_id)
            due, reason = self._due(members)
            if due <= now:
                closings.append(self._close(members, reason))
            else:
                self._alarm(due, turn_id)
        while len(self._turns) > self._limits.max_turns or self.bytes > self._limits.max_bytes:
            closings.append(self._close(self._component(next(iter(self._turns))), "limit"))
        self._expire(now)
        return closings

    def close_long(self, turn: Turn) -> Closing | None:
        """Close the trajectory of `turn` if it has as many steps as it may have.

        To look is to walk the trajectory, so it is done where the conversation is that long; every so often anyway, for
        clients that forget their past.
        """
        self._looks += 1
        named = len(self._makers.get(("t", turn.tenant, turn.explicit), ())) if turn.explicit else 0
        long = max(named, turn.depth + 1) >= self._limits.max_steps or self._looks % _LOOK_EVERY == 0
        if not long or turn.id not in self._turns:
            return None
        members = self._component(turn.id)
        return self._close(members, "limit") if len(members) >= self._limits.max_steps else None

    def remember(self, turns: Sequence[Turn], trajectory_id: str) -> None:
        """`turns` are in a closed trajectory: what still comes for it is late."""
        ended = max((turn.ended for turn in turns), default=0.0)
        for turn in turns:
            self.remember_keys([key for key in _made(turn) if key[0] != "h"], trajectory_id, ended)

    def remember_keys(self, keys: Sequence[Key], trajectory_id: str, ended: float) -> None:
        """As `remember`, for the rebuild."""
        for key in keys:
            self._closed[key], self._ended[key] = trajectory_id, ended
            self._closed.move_to_end(key)
        while len(self._closed) > self._limits.remembered:
            key, _ = self._closed.popitem(last=False)
            self._ended.pop(key, None)

    def _alarm(self, at: float, turn_id: str) -> None:
        heapq.heappush(self._alarms, (at, turn_id))
        if len(self._alarms) > 4 * len(self._turns) + 1024:
            self._alarms = [alarm for alarm in self._alarms if alarm[1] in self._turns]
            heapq.heapify(self._alarms)

    def _due(self, members: Sequence[Turn]) -> tuple[float, str]:
        arrivals = [self._arrived[turn.id] for turn in members]
        final = [self._feedback[f.id][1] for f in self._heard(members) if f.final]
        if final:
            return max(min(final), min(arrivals)) + self._limits.grace_seconds, "feedback"
        return max(arrivals) + self._limits.idle_seconds, "idle"

    def _close(self, members: Sequence[Turn], reason: str) -> Closing:
        feedback = self._heard(members)
        confidence = min(self._confidence(turn, first=number == 0) for number, turn in enumerate(members))
        for turn in members:
            del self._turns[turn.id], self._arrived[turn.id]
            self.bytes -= turn.size
            for key in _made(turn):
                _discard(self._makers, key, turn.id)
            for key in _taken(turn):
                _discard(self._takers, key, turn.id)
        for heard in feedback:
            self.forget(heard.id)
        return Closing(turns=tuple(members), feedback=tuple(feedback), closed_by=reason, confidence=confidence)

    def _confidence(self, turn: Turn, *, first: bool) -> float:
        if turn.explicit or (not first and self._strong_origins(turn)):
            return 1.0
        if first:
            # A conversation that began before the first turn that we have: its beginning is missing.
            return 0.5 if turn.history else 1.0
        return 0.8

    def _heard(self, turns: Sequence[Turn]) -> list[Feedback]:
        ids = {found for turn in turns for key in _named(turn) for found in self._said.get(key, ())}
        return sorted((self._feedback[key][0] for key in ids), key=lambda f: (f.received, f.id))

    def _meant_turns(self, feedback: Feedback) -> list[str]:
        return [turn_id for key in _meant(feedback) for turn_id in sorted(self._makers.get(key, ()))]

    def _component(self, turn_id: str) -> list[Turn]:
        """The turn and all that are linked to it, by start."""
        found, open_ends = {turn_id}, [turn_id]
        while open_ends:
            for other in self._linked(self._turns[open_ends.pop()]):
                if other not in found:
                    found.add(other)
                    open_ends.append(other)
        return sorted((self._turns[key] for key in found), key=lambda turn: (turn.started, turn.id))

    def _linked(self, turn: Turn) -> Iterator[str]:
        if turn.explicit:
            yield from self._makers.get(("t", turn.tenant, turn.explicit), ())
        yield from self._origins(turn)
        for key in _made(turn):
            if key[0] in "crh" and self._sole(key) == turn.id:
                for other in self._takers.get(key, ()):
                    if key[0] != "h" or not self._strong_origins(self._turns[other]):
                        yield other

    def _origins(self, turn: Turn) -> list[str]:
        """The turns that `turn` follows."""
        if turn.explicit:
            return []
        return self._strong_origins(turn) or self._weak_origins(turn)

    def _strong_origins(self, turn: Turn) -> list[str]:
        soles = (self._sole(key) for key in _strong(turn))
        return [sole for sole in soles if sole and sole != turn.id]

    def _weak_origins(self, turn: Turn) -> list[str]:
        sole = self._sole(("h", turn.tenant, turn.history)) if turn.history else ""
        return [sole] if sole and sole != turn.id else []

    def _sole(self, key: Key) -> str:
        makers = self._makers.get(key, ())
        return next(iter(makers)) if len(makers) == 1 and key not in self._repeated else ""

    def _repeat(self, key: Key) -> None:
        # A key stays ambiguous when one of its makers has closed: else the order of closings would decide.
        self._repeated[key] = None
        self._repeated.move_to_end(key)
        if len(self._repeated) > self._limits.remembered:
            self._repeated.popitem(last=False)

    def _expire(self, now: float) -> None:
        while self._feedback:
            feedback, heard = next(iter(self._feedback.values()))
            if heard + self._limits.feedback_seconds > now or self._meant_turns(feedback):
                return
            self.forget(feedback.id)
            self.feedback_evicted += 1


def _response(turn: Turn) -> Key:
    return ("r", turn.tenant, turn.response_id)


def _strong(turn: Turn) -> list[Key]:
    keys: list[Key] = [("c", turn.tenant, call) for call in turn.answered[-_ECHOES:]]
    if turn.previous:
        keys.append(("r", turn.tenant, turn.previous))
    return keys


def _taken(turn: Turn) -> list[Key]:
    if turn.explicit:
        return []
    return [*_strong(turn), ("h", turn.tenant, turn.history)] if turn.history else _strong(turn)


def _named(turn: Turn) -> list[Key]:
    """How feedback may name it."""
    keys: list[Key] = [("x", turn.tenant, turn.id)]
    if turn.response_id:
        keys.append(_response(turn))
    if turn.explicit:
        keys.append(("t", turn.tenant, turn.explicit))
    return keys


def _made(turn: Turn) -> list[Key]:
    """All keys under which it is found."""
    calls: list[Key] = [("c", turn.tenant, call.id) for call in turn.tool_calls if call.id]
    return [*_named(turn), *calls, ("h", turn.tenant, turn.future)]


def _meant(feedback: Feedback) -> list[Key]:
    named = (("x", feedback.exchange_id), ("r", feedback.response_id), ("t", feedback.trajectory_id))
    return [(kind, feedback.tenant, value) for kind, value in named if value]


def _discard(index: dict[Key, set[str]], key: Key, value: str) -> None:
    found = index.get(key)
    if found is not None:
        found.discard(value)
        if not found:
            del index[key]
