"""Which turns belong together: explicit trajectory ids, echoes of tool-call ids, and the conversation itself.

Ids are of one agent key: another key of the tenant that names them names nothing.

Nothing here depends on the order of arrival: links are looked up in the set of open turns when a trajectory is about to
close, so that any permutation of the same exchanges and feedback, with duplicates, closes as the same trajectories.

    1. an explicit trajectory id: all turns of the tenant's agent key that name it;
    2. a tool call, or a response, that exactly one open turn made and others answer;
    3. else the conversation so far, if exactly one open turn led to it: for answers without tool calls, and for engines
       whose tool-call ids repeat (`call_0`);
    4. else the goal and the last answer, if exactly one open turn gave it: for clients whose system prompt changes.

3 and 4 link to nothing that began later: after a crash an opening may come behind the next one with the same words.

A link that could be to either of two turns is no link: a trajectory in two parts costs some credit, one made of two
users' calls is wrong. What comes for a trajectory that has closed opens one that continues it: the closed one has been
judged and maybe trained on, and is never changed.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from actors.messages import Feedback
from actors.messages.bounded import Bounded
from actors.trajectories.link_keys import (
    BROKEN,
    IDS,
    ORIGINS,
    Index,
    Key,
    Link,
    explicit,
    link_by,
    made,
    meant,
    named,
    taken,
)
from actors.trajectories.parsed_exchange import ParsedExchange


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When trajectories close, and what may be open."""

    idle_seconds: float = 900.0
    """Without a call for so long, a trajectory is over."""
    grace_seconds: float = 1.0
    """From final feedback to closing, for exchanges that are still on their way."""
    missing_seconds: float = 60.0
    """The same where a turn follows one that is not here: after a crash, what was in work comes again within the
    broker's ack wait, 30 s, behind what is new. A conversation whose beginning was never seen waits as long."""
    max_steps: int = 256
    """A trajectory with so many steps closes, with those of the same batch: a client that names one id for ever would
    have whole days in one."""
    max_turns: int = 20_000
    """Beyond that the oldest trajectories close; a turn takes some 10 KB."""
    max_bytes: int = 512 << 20
    max_feedback: int = 10_000
    """On open trajectories; what is beyond that joins them when they have closed."""
    remembered: int = 100_000
    """Keys of closed trajectories that are kept to recognise late exchanges."""


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory that is over."""

    turns: tuple[ParsedExchange, ...]
    """In order."""
    links: dict[str, Link]
    """By turn; a turn that begins a conversation has none."""
    feedback: tuple[Feedback, ...]
    """By time of receipt."""
    closed_by: Literal["feedback", "idle", "limit"]
    continues: str = ""
    """Id of the closed trajectory that the first turn follows."""


class _Open(msgspec.Struct):
    """A turn whose trajectory is not over."""

    turn: ParsedExchange
    made: list[Key]
    taken: list[Key]
    arrived: float
    due: float
    """When its trajectory may be over."""


class Stitcher:
    """The open turns, their links, and what was said of them; feedback whose turns are not open waits in the store."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, _Open] = {}
        self._makers, self._takers, self._said = Index(), Index(), Index()
        self._feedback: dict[str, tuple[Feedback, float]] = {}
        self._closed: Bounded[Key, tuple[str, float]] = Bounded(limits.remembered)
        """(id, end) of the closed trajectory that made it."""
        self._repeated: Bounded[Key, None] = Bounded(limits.remembered)
        """Ambiguous for good, also when one of its makers has closed: else the order of closings would decide."""
        self._keys: Bounded[Key, str | None] = Bounded(limits.remembered)
        """Agent key that uses an explicit id; None: several do."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, turn: ParsedExchange, now: float) -> bool:
        """Take in a turn; False if it is here or was. Its record's id says so: engines repeat response ids."""
        if turn.id in self._open or ("x", turn.tenant, turn.id) in self._closed:
            return False
        one = _Open(turn, made(turn), taken(turn), now, now + self._limits.idle_seconds)
        self._open[turn.id] = one
        self.bytes += turn.size
        for key in one.made:
            self._makers.add(key, turn.id)
            # An id that a closed trajectory made too is one that the engine repeats.
            if key[0] in ORIGINS and (len(self._makers.get(key)) > 1 or (key[0] in "cp" and key in self._closed)):
                self._repeated[key] = None
            if key[0] == "t":
                self._keys[key] = turn.caller if self._keys.get(key, turn.caller) == turn.caller else None
        for key in one.taken:
            self._takers.add(key, turn.id)
        if any(self._takers.get(key) for key in one.made) or any(map(ends, self._heard([turn]))):
            one.due = now + self._limits.grace_seconds
        if max(len(self._makers.get(explicit(turn))), turn.depth + 1) >= self._limits.max_steps:
            one.due = now
        return True

    def hear(self, feedback: Feedback, now: float) -> bool:
        """Take in feedback; False if none of its turns is open."""
        turns = self._meant(feedback)
        if turns and feedback.id not in self._feedback and len(self._feedback) < self._limits.max_feedback:
            self._feedback[feedback.id] = (feedback, now)
            for key in meant(feedback):
                self._said.add(key, feedback.id)
        if ends(feedback):
            for one in map(self._open.__getitem__, turns):
                one.due = min(one.due, now + self._limits.grace_seconds)
        return bool(turns)

    def close_due(self, now: float) -> list[Closing]:
        """Close what is due: final feedback, idleness, too many steps, too much open."""
        closings: list[Closing] = []
        for one in [one for one in self._open.values() if one.due <= now]:
            if one.turn.id not in self._open or one.due > now:
                continue
            members = self._component(one.turn.id)
            due, reason = self._due(members)
            for turn in members:
                self._open[turn.id].due = due
            if due <= now:
                closings.append(self._close(members, reason))
        while len(self._open) > self._limits.max_turns or self.bytes > self._limits.max_bytes:
            closings.append(self._close(self._component(next(iter(self._open))), "limit"))
        return closings

    def remember(self, turns: Sequence[ParsedExchange], trajectory_id: str) -> None:
        """`turns` are in a closed trajectory: what still comes for it continues it."""
        keys = [key for turn in turns for key in made(turn) if key[0] in "xs" + ORIGINS]
        self.remember_keys(keys, trajectory_id, max((turn.ended for turn in turns), default=0.0))

    def remember_keys(self, keys: Sequence[Key], trajectory_id: str, ended: float) -> None:
        """As `remember`, for the rebuild."""
        for key in keys:
            if key[0] in ORIGINS and self._closed.get(key, (trajectory_id,))[0] != trajectory_id:
                self._repeated[key] = None
            self._closed[key] = trajectory_id, ended

    def _due(self, members: Sequence[ParsedExchange]) -> tuple[float, Literal["feedback", "idle", "limit"]]:
        arrivals = [self._open[turn.id].arrived for turn in members]
        if len(members) >= self._limits.max_steps:
            return max(arrivals), "limit"
        final = [self._feedback[f.id][1] for f in self._heard(members) if ends(f)]
        if final:
            # After a crash the broker delivers again what was in work, but later than what is new: a turn that follows
            # one that nobody has seen says that there is more to come.
            missing = any(self._orphaned(turn) for turn in members)
            grace = self._limits.missing_seconds if missing else self._limits.grace_seconds
            return max(min(final), min(arrivals)) + grace, "feedback"
        return max(arrivals) + self._limits.idle_seconds, "idle"

    def _close(self, members: Sequence[ParsedExchange], reason: Literal["feedback", "idle", "limit"]) -> Closing:
        feedback = self._heard(members)
        continued, by = self._continued(members[0])
        found = {turn.id: self._link(turn, by if turn is members[0] else None) for turn in members}
        for turn in members:
            one = self._open.pop(turn.id)
            self.bytes -= turn.size
            for key in one.made:
                self._makers.discard(key, turn.id)
            for key in one.taken:
                self._takers.discard(key, turn.id)
        heard = {one.id for one in feedback}
        for said in self._about(members):
            if said in heard or not self._meant(self._feedback[said][0]):
                for key in meant(self._feedback.pop(said)[0]):
                    self._said.discard(key, said)
        links = {turn_id: link for turn_id, link in found.items() if link is not None}
        return Closing(
            turns=tuple(members), links=links, feedback=tuple(feedback), closed_by=reason, continues=continued
        )

    def _link(self, turn: ParsedExchange, continued_by: Key | None) -> Link | None:
        origins = self._origins(turn)
        key = explicit(turn) if turn.explicit else origins[0][1] if origins else continued_by
        if key is not None:
            return link_by(key, turn)
        return Link("none", BROKEN) if turn.history or turn.hints.previous_response_id else None

    def _orphaned(self, turn: ParsedExchange) -> bool:
        """Whether a turn that it follows is not here and never was."""
        if turn.explicit or not (turn.history or turn.hints.previous_response_id) or self._continued(turn)[0]:
            return False
        keys = self._open[turn.id].taken
        ids = [key for key in keys if key[0] in IDS]
        return any(self._unseen(key, turn) for key in ids) if ids else all(self._unseen(key, turn) for key in keys)

    def _unseen(self, key: Key, turn: ParsedExchange) -> bool:
        """Whether nothing that `turn` could follow has made `key`."""
        if key in self._closed or key in self._repeated:
            return False
        return all(self._open[maker].turn.started > turn.started for maker in self._makers.get(key))

    def _about(self, turns: Sequence[ParsedExchange]) -> set[str]:
        """Feedback that names one of `turns`."""
        return {said for turn in turns for key in named(turn) for said in self._said.get(key)}

    def _heard(self, turns: Sequence[ParsedExchange]) -> list[Feedback]:
        """What was said of `turns`, by time of receipt."""
        ids = {turn.id for turn in turns}
        told = [self._feedback[said][0] for said in self._about(turns)]
        return sorted((one for one in told if not ids.isdisjoint(self._meant(one))), key=lambda f: (f.received, f.id))

    def _meant(self, feedback: Feedback) -> set[str]:
        """The open turns that `feedback` is about, as the store has it (`actors.store.runs.find_trajectory`): those by
        the first of its names that means any."""
        return next(filter(None, (self._named(key, feedback) for key in meant(feedback))), set())

    def _named(self, key: Key, feedback: Feedback) -> set[str]:
        """Of calls whose response, or own id, came again, the newest that had begun when it was said; of a trajectory
        that several keys name, those of its own key."""
        found = self._makers.get(key)
        if key[0] == "t" and self._keys.get(key, "") is None:
            return {turn_id for turn_id in found if self._open[turn_id].turn.caller == feedback.caller}
        if key[0] not in "ru" or len(found) < 2:
            return found
        turns = [self._open[turn_id].turn for turn_id in found]
        return {max(turns, key=lambda turn: (turn.started <= feedback.received, turn.started, turn.id)).id}

    def _component(self, turn_id: str) -> list[ParsedExchange]:
        """The turn and all that are linked to it: by start, but none before one that it names. A clock may be set back
        in the middle of a run."""
        found, open_ends = {turn_id}, [turn_id]
        while open_ends:
            linked = set(self._linked(self._open[open_ends.pop()])) - found
            found |= linked
            open_ends += linked
        began: dict[str, float] = {}
        members = sorted((self._open[key].turn for key in found), key=lambda turn: (turn.depth, turn.started, turn.id))
        for turn in members:
            before = (began.get(self._sole(key), turn.started) for key in self._open[turn.id].taken)
            began[turn.id] = max([turn.started, *before])
        return sorted(members, key=lambda turn: (began[turn.id], turn.depth, turn.id))

    def _linked(self, one: _Open) -> Iterator[str]:
        turn = one.turn
        if turn.explicit:
            yield from self._makers.get(explicit(turn))
        for origin, _ in self._origins(turn):
            yield origin
        for key in one.made:
            if key[0] in ORIGINS and self._sole(key) == turn.id:
                for other in self._takers.get(key):
                    if any(origin == turn.id for origin, _ in self._origins(self._open[other].turn)):
                        yield other

    def _origins(self, turn: ParsedExchange) -> list[tuple[str, Key]]:
        """The turns that `turn` follows, and what tells so: all that its ids name, else the one by the best key."""
        found: list[tuple[str, Key]] = []
        for key in () if turn.explicit else self._open[turn.id].taken:
            origin = self._sole(key)
            if origin and origin != turn.id and (key[0] in IDS or self._open[origin].turn.started <= turn.started):
                found.append((origin, key))
        return [one for one in found if one[1][0] in IDS] or found[:1]

    def _continued(self, turn: ParsedExchange) -> tuple[str, Key | None]:
        """(id of the closed trajectory that `turn` belongs to, the key that tells so)"""
        key = explicit(turn)
        # The same id after the end is a new conversation of a long session.
        if turn.explicit and key in self._closed and turn.started <= self._closed[key][1]:
            return self._closed[key][0], key
        for key in self._open[turn.id].taken:
            if key in self._closed and key not in self._repeated:
                return self._closed[key][0], key
        return "", None

    def _sole(self, key: Key) -> str:
        """The open turn that alone has made `key`; empty if there is none, or were several."""
        return "" if key in self._repeated else self._makers.sole(key)


def ends(feedback: Feedback) -> bool:
    """Whether it says that the trajectory is over: what is about one step never does."""
    return feedback.final and feedback.whole
