"""Keys under which turns find each other: what a turn makes, what it takes up, and how feedback may name it."""

from typing import Literal

import msgspec

from actors.messages import Feedback, Trajectory
from actors.messages.dialects import guessable
from actors.trajectories.parsed_exchange import ParsedExchange

Key = tuple[str, str, str]
"""(kind, scope, value). Kinds that feedback names, of a tenant: x exchange, r response, u custom id, t explicit id.
Kinds that turns find each other by, of a tenant's agent key: s explicit id, p response, c tool call or part of an
answer, e such an id seen by a mirror, h conversation, q request whose answer was empty or is not known, l outline of an
answer"""
ORIGINS = "cphlq"
"""Kinds by which a turn follows the one that made the key, if no other did."""
Signal = Literal["explicit", "response", "tool_call", "prefix", "none"]

CERTAIN, LIKELY, GUESSED, BROKEN = 1.0, 0.8, 0.6, 0.5
"""Linked by ids; by the conversation, or by ids that engines repeat; by the outline of an answer; not at all, although
something came before."""


class Link(msgspec.Struct, frozen=True):
    """How a turn came to its place."""

    signal: Signal
    confidence: float


_LINKS = {
    "s": Link("explicit", CERTAIN), "p": Link("response", CERTAIN), "c": Link("tool_call", CERTAIN),
    "e": Link("tool_call", LIKELY), "h": Link("prefix", LIKELY), "q": Link("prefix", GUESSED),
    "l": Link("prefix", GUESSED),
}  # fmt: skip

_ECHOES = 8
"""Newest ids that a turn is linked by: enough to bridge calls that were lost, few enough for long runs."""


class Index:
    """Turn ids by key. Nearly all keys have one turn: a set for each would be most of the memory of an open turn."""

    def __init__(self) -> None:
        self._found: dict[Key, str | set[str]] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def get(self, key: Key) -> tuple[str, ...]:
        """All turns under `key`, in order."""
        found = self._found.get(key, ())
        return (found,) if isinstance(found, str) else tuple(sorted(found))

    def count(self, key: Key) -> int:
        """How many there are."""
        found = self._found.get(key)
        return 0 if found is None else 1 if isinstance(found, str) else len(found)

    def sole(self, key: Key) -> str:
        """The only turn under `key`; empty if there is none, or another one."""
        found = self._found.get(key, "")
        return found if isinstance(found, str) else next(iter(found)) if len(found) == 1 else ""

    def add(self, key: Key, value: str) -> None:
        found = self._found.get(key)
        if found is None:
            self._found[key] = value
        elif isinstance(found, set):
            found.add(value)
        elif found != value:
            self._found[key] = {found, value}

    def discard(self, key: Key, value: str) -> None:
        found = self._found.get(key)
        if isinstance(found, set):
            found.discard(value)
            if not found:
                del self._found[key]
        elif found == value:
            del self._found[key]


def named(turn: ParsedExchange) -> list[Key]:
    """How feedback may name it."""
    keys: list[Key] = [("x", turn.tenant, turn.id)]
    if turn.response_id:
        keys.append(("r", turn.tenant, turn.response_id))
    if turn.custom_id:
        keys.append(("u", turn.tenant, turn.custom_id))
    if turn.explicit:
        keys.append(("t", turn.tenant, turn.explicit))
    return keys


def meant(feedback: Feedback) -> list[Key]:
    """The turns that `feedback` is about."""
    told = (
        ("x", feedback.exchange_id), ("r", feedback.response_id), ("u", feedback.custom_id),
        ("t", feedback.trajectory_id),
    )  # fmt: skip
    return [(kind, feedback.tenant, value) for kind, value in told if value]


def made(turn: ParsedExchange) -> list[Key]:
    """All keys under which it is found."""
    keys, scope = named(turn), _scope(turn)
    if turn.response_id:
        keys.append(("p", scope, turn.response_id))
    if turn.explicit:
        keys.append(explicit(turn))
    for answer in turn.answers:
        keys += [("c", scope, call.id) for call in answer.tool_calls if call.id]
        keys += [("c", scope, ref) for ref in answer.refs]
        keys += [("h", scope, answer.future), ("l", scope, answer.outline)]
    if turn.mirrored or turn.empty:
        keys.append(("q", scope, turn.asked))
    if turn.mirrored:
        keys += [("e", scope, call) for call in turn.answered[-_ECHOES:] if not guessable(call)]
    return keys


def strong(turn: ParsedExchange) -> list[Key]:
    """Ids that it takes up, the newest first."""
    scope = _scope(turn)
    keys: list[Key] = [("p", scope, turn.previous)] if turn.previous else []
    return keys + [("c", scope, call) for call in reversed(turn.answered[-_ECHOES:])]


def weak(turn: ParsedExchange) -> list[Key]:
    """What else tells whom it follows, the best first. Calls of two callers never follow each other by this."""
    scope = _scope(turn)
    # Whoever answered without a word follows the same answer by its own request.
    keys: list[Key] = [("q", scope, asked) for asked in turn.requests]
    return [("h", scope, turn.history), *keys, ("l", scope, turn.outline)] if turn.history else keys


def taken(turn: ParsedExchange) -> list[Key]:
    """All keys that it may follow another turn by."""
    return [] if turn.explicit else [*strong(turn), *weak(turn)]


def shared(turn: ParsedExchange) -> list[Key]:
    """Keys that make one trajectory of all turns that have them."""
    if turn.explicit:
        return [explicit(turn)]
    return [key for key in made(turn) if key[0] == "e"] if turn.mirrored else []


def explicit(turn: ParsedExchange) -> Key:
    """The key of the trajectory that it names itself."""
    return ("s", _scope(turn), turn.explicit)


def of_run(run: Trajectory) -> list[Key]:
    """The keys by which a closed trajectory is remembered of the record that was made of it."""
    scope = _of_key(run.tenant, run.caller)
    keys: list[Key] = [("x", run.tenant, step.exchange_id) for step in run.steps]
    keys += [("p", scope, step.response_id) for step in run.steps if step.response_id]
    return keys + [("c", scope, call.id) for step in run.steps for call in step.tool_calls if call.id]


def link_by(key: Key) -> Link:
    """What `key` tells, and how surely."""
    return Link("tool_call", LIKELY) if key[0] == "c" and guessable(key[2]) else _LINKS[key[0]]


def _scope(turn: ParsedExchange) -> str:
    """Ids are no secret: whoever has a key of his own does not write into a run of another by naming its ids."""
    return _of_key(turn.tenant, turn.caller)


def _of_key(tenant: str, caller: str) -> str:
    return f"{tenant}\x1f{caller}"
