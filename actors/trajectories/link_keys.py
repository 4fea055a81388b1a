"""Keys under which turns find each other: what a turn makes, what it takes up, and how feedback may name it."""

from typing import Literal

import msgspec

from actors.messages import Feedback, Trajectory
from actors.messages.dialects import guessable
from actors.trajectories.parsed_exchange import ParsedExchange

Key = tuple[str, str, str]
"""(kind, scope, value). Kinds that feedback names, of a tenant: x exchange, r response, u custom id, t explicit id.
Kinds that turns find each other by, of a tenant's agent key: s explicit id, p response, c tool call or part of an
answer, e tool call that a mirror saw in the next request, h conversation, l outline of an answer"""
ORIGINS = "pcehl"
"""Kinds by which a turn follows the one that made the key, if no other did."""
Signal = Literal["explicit", "response", "tool_call", "prefix", "none"]

CERTAIN, LIKELY, GUESSED, BROKEN = 1.0, 0.8, 0.6, 0.5
"""Linked by ids; by the conversation, or by ids that engines repeat; by less; not at all, although something came
before."""
_ECHOES = 8
"""Newest ids that a turn is linked by: enough to bridge calls that were lost, few enough for long runs."""


class Link(msgspec.Struct, frozen=True):
    """How a turn came to its place."""

    signal: Signal
    confidence: float


_LINKS = {
    "s": Link("explicit", CERTAIN), "p": Link("response", CERTAIN), "c": Link("tool_call", CERTAIN),
    "e": Link("tool_call", LIKELY), "h": Link("prefix", LIKELY), "l": Link("prefix", GUESSED),
}  # fmt: skip


class Index:
    """Turn ids by key. Nearly all keys have one turn: a set for each would be most of the memory of an open turn."""

    def __init__(self) -> None:
        self._found: dict[Key, str | set[str]] = {}

    def get(self, key: Key) -> set[str]:
        """All turns under `key`."""
        found = self._found.get(key, "")
        return found if isinstance(found, set) else {found} if found else set()

    def count(self, key: Key) -> int:
        """How many there are."""
        found = self._found.get(key, ())
        return 1 if isinstance(found, str) else len(found)

    def sole(self, key: Key) -> str:
        """The only turn under `key`; empty if there is none, or another one."""
        found = self._found.get(key, "")
        return found if isinstance(found, str) else ""

    def add(self, key: Key, value: str) -> None:
        found = self._found.setdefault(key, value)
        if isinstance(found, set):
            found.add(value)
        elif found != value:
            self._found[key] = {found, value}

    def discard(self, key: Key, value: str) -> None:
        found = self._found.get(key)
        if isinstance(found, set):
            found.discard(value)
            if len(found) == 1:
                self._found[key] = found.pop()
        elif found == value:
            del self._found[key]


def named(turn: ParsedExchange) -> list[Key]:
    """How feedback may name it."""
    told = ("x", turn.id), ("r", turn.response_id), ("u", turn.custom_id), ("t", turn.explicit)
    return [(kind, turn.tenant, value) for kind, value in told if value]


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
        keys += [("c", scope, call.id) for call in answer.calls if call.id]
        keys += [("c", scope, ref) for ref in answer.refs]
        keys += [("h", scope, answer.future), ("l", scope, answer.outline)]
    if turn.echo is not None:
        keys += [("e", scope, call.id) for call in turn.echo.calls if call.id and not guessable(call.id)]
    return keys


def strong(turn: ParsedExchange) -> list[Key]:
    """Ids that it takes up, the newest first."""
    scope, kind = _scope(turn), "c" if turn.echo is None else "e"
    keys: list[Key] = [("p", scope, turn.previous)] if turn.previous else []
    return keys + [(kind, scope, call) for call in reversed(turn.answered[-_ECHOES:])]


def weak(turn: ParsedExchange) -> list[Key]:
    """What else tells whom it follows, the best first. Calls of two callers never follow each other by this."""
    scope = _scope(turn)
    # Whoever answered without a word follows the same answer by its own request.
    told = (("h", turn.history), *(("h", request) for request in turn.requests), ("l", turn.outline))
    return [(kind, scope, value) for kind, value in told if value]


def taken(turn: ParsedExchange) -> list[Key]:
    """All keys that it may follow another turn by."""
    return [] if turn.explicit else [*strong(turn), *weak(turn)]


def explicit(turn: ParsedExchange) -> Key:
    """The key of the trajectory that it names itself."""
    return ("s", _scope(turn), turn.explicit)


def of_run(run: Trajectory) -> list[Key]:
    """The keys by which a closed trajectory is remembered of the record that was made of it."""
    scope = _of_key(run.tenant, run.caller)
    keys: list[Key] = [("x", run.tenant, step.exchange_id) for step in run.steps]
    keys += [("p", scope, step.response_id) for step in run.steps if step.response_id]
    return keys + [("c", scope, call.id) for step in run.steps for call in step.tool_calls if call.id]


def link_by(key: Key, turn: ParsedExchange) -> Link:
    """What `key` tells of `turn`, and how surely."""
    if key[0] == "c" and guessable(key[2]):
        return Link("tool_call", LIKELY)
    return Link("prefix", GUESSED) if is_guess(key, turn) else _LINKS[key[0]]


def is_guess(key: Key, turn: ParsedExchange) -> bool:
    """Whether it tells where in the conversation of `turn` an answer may have been that nobody has seen there."""
    return key[0] == "h" and key[2] != turn.history


def _scope(turn: ParsedExchange) -> str:
    """Ids are no secret: whoever has a key of his own does not write into a run of another by naming its ids."""
    return _of_key(turn.tenant, turn.caller)


def _of_key(tenant: str, caller: str) -> str:
    return f"{tenant}\x1f{caller}"
