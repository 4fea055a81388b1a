"""Keys under which turns find each other: what a turn makes, what it takes up, and how feedback may name it."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from actors.messages import Feedback, Trajectory
from actors.messages.dialects import guessable
from actors.trajectories.parsed_exchange import ParsedExchange

Key = tuple[str, str, str]
"""(kind, scope, value). Kinds that feedback names, of a tenant: x exchange, r response, u custom id, t explicit id.
Kinds that turns find each other by, of a tenant's agent key: s explicit id, p response, c tool call or part of an
answer, e tool call that a mirror saw in the next request, h conversation, l outline of an answer"""
IDS = "pce"
ORIGINS = IDS + "hl"
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
    told = ("x", turn.id), ("r", turn.response_id), ("u", turn.hints.custom_id), ("t", turn.explicit)
    return _keys(turn.tenant, told)


def meant(said: Feedback) -> list[Key]:
    """The turns that it is about."""
    told = ("x", said.exchange_id), ("r", said.response_id), ("u", said.custom_id), ("t", said.trajectory_id)
    return _keys(said.tenant, told)


def made(turn: ParsedExchange) -> list[Key]:
    """All keys under which it is found."""
    told = [("p", turn.response_id), ("s", turn.explicit)]
    for answer in turn.answers:
        told += [("c", name) for name in (*(call.id for call in answer.calls), *answer.refs)]
        told += [("h", answer.future), ("l", answer.outline)]
    if turn.echo is not None:
        told += [("e", call.id) for call in turn.echo.calls if not guessable(call.id)]
    return named(turn) + _keys(_scope(turn), told)


def taken(turn: ParsedExchange) -> list[Key]:
    """What tells whom it follows, the best first: ids, the newest first, then the conversation. Calls of two callers
    never follow each other by this."""
    kind = "c" if turn.echo is None else "e"
    told = [("p", turn.hints.previous_response_id), *((kind, call) for call in reversed(turn.answered[-_ECHOES:]))]
    # Whoever answered without a word follows the same answer by its own request.
    told += [("h", turn.history), *(("h", request) for request in turn.requests), ("l", turn.outline)]
    return _keys(_scope(turn), told)


def explicit(turn: ParsedExchange) -> Key:
    """The key of the trajectory that it names itself."""
    return ("s", _scope(turn), turn.explicit)


def of_run(run: Trajectory) -> list[Key]:
    """The keys by which a closed trajectory is remembered of the record that was made of it."""
    told = [("p", step.response_id) for step in run.steps]
    told += [("c", call.id) for step in run.steps for call in step.tool_calls]
    calls = [("x", step.exchange_id) for step in run.steps]
    return _keys(run.tenant, calls) + _keys(_of_key(run.tenant, run.caller), told)


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


def _keys(scope: str, told: Iterable[tuple[str, str]]) -> list[Key]:
    return [(kind, scope, value) for kind, value in told if value]


def _of_key(tenant: str, caller: str) -> str:
    return f"{tenant}\x1f{caller}"
