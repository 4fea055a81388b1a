"""Readers of what happened next: each says +1 (it went well), -1 (it did not) or 0 (nothing to say) of a run.

Each is a pure function of a run and of its aftermath, and knows nothing of the others. None is believed: how often each
speaks and how right it is of an agent's runs is on record (`signal_records`), and what it weighs is learned from
reported outcomes (`outcome_model`).
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from actors.provisional.phrases import reaction
from actors.provisional.transcript import Transcript, alike, telling

AGAIN = 0.6
"""Cosine from which on a later request is the same again."""
SAME_THING = 0.3
"""The same where both name the same order, account or date."""
REACH = 3600.0
"""Seconds after a run's end in which the same party's next request can be about it."""
_TURNS = 8
"""Turns of a conversation, the last ones, that are looked at."""


class Aftermath(msgspec.Struct, frozen=True):
    """What followed a run."""

    turns: tuple[str, ...] = ()
    """What the user said when the conversation went on in another run, oldest first."""
    again: bool = False
    """The same party asked for the same again."""


NOTHING = Aftermath()
Reader = Callable[[Transcript, Aftermath], int]


def follows(before: Transcript, after: Aftermath, later: Transcript) -> Aftermath:
    """`after`, with what the run `later` says of the run `before`; itself if it says nothing."""
    if later.continues and later.continues == before.id:
        turns = (*after.turns, *([later.resumed] if later.resumed else ()), *later.turns)
        return Aftermath(turns[-_TURNS:], after.again)
    near = (later.tenant, later.party, later.agent) == (before.tenant, before.party, before.agent)
    if not near or not 0.0 <= later.started - before.ended <= REACH or later.continues:
        return after
    return Aftermath(after.turns, True) if repeats(before, later) else after


def repeats(first: Transcript, second: Transcript) -> bool:
    """Whether the second request is the first again."""
    close = alike(first.words, second.words)
    if first.names and second.names:
        # Two orders are two requests, however alike the words are.
        return close >= SAME_THING and not first.names.isdisjoint(second.names)
    return close >= AGAIN


def _reactions(run: Transcript, after: Aftermath) -> list[str]:
    return [said for turn in (*run.turns, *after.turns)[-_TURNS:] if (said := reaction(turn))]


def _last(run: Transcript, after: Aftermath) -> str:
    return (_reactions(run, after) or [""])[-1]


def reacted(run: Transcript, after: Aftermath) -> bool:
    """Whether the user has said what they think of it, or asked for the same again: nothing more is waited for."""
    return bool(after.again or _last(run, after))


def thanks(run: Transcript, after: Aftermath) -> int:
    """The last thing that the user said of an answer is thanks."""
    return int(_last(run, after) == "thanks")


def complaint(run: Transcript, after: Aftermath) -> int:
    """It is that it was not done, or is wrong."""
    return -int(_last(run, after) == "complaint")


def correction(run: Transcript, after: Aftermath) -> int:
    """It is that something else was meant."""
    return -int(_last(run, after) == "correction")


def complained(run: Transcript, after: Aftermath) -> int:
    """The user complained or corrected at some time, whatever came of it."""
    return -int(any(said != "thanks" for said in _reactions(run, after)))


def asked_again(run: Transcript, after: Aftermath) -> int:
    """The same request came again: in the conversation, or as the party's next run."""
    turns = (*run.turns, *after.turns)[-_TURNS:]
    return -int(after.again or any(alike(run.words, telling(turn)) >= AGAIN for turn in turns))


def went_on(run: Transcript, after: Aftermath) -> int:
    """The user went on to something else, without a word against what was done."""
    turns = (*run.turns, *after.turns)[-_TURNS:]
    if not turns or reaction(turns[-1]) not in ("", "thanks"):
        return 0
    return int(len(turns[-1]) >= 12 and alike(run.words, telling(turns[-1])) < SAME_THING)


def unanswered(run: Transcript, after: Aftermath) -> int:
    """It ended in a question that nobody answered."""
    return -int(run.asked and not after.turns)


def last_result(run: Transcript, after: Aftermath) -> int:
    """How the last call that tells went."""
    verdict = next((verdict for _, verdict in reversed(run.calls) if verdict != "unknown"), "")
    return {"ok": 1, "failed": -1}.get(verdict, 0)


def retried(run: Transcript, after: Aftermath) -> int:
    """A call was made again, to the letter, or half of the steps' calls failed."""
    return -int(run.repeated > 0 or 2 * run.errors >= max(2, run.steps))


def cut_off(run: Transcript, after: Aftermath) -> int:
    """It ended at a limit of tokens or steps."""
    return -int(run.cut)


def nothing_done(run: Transcript, after: Aftermath) -> int:
    """It called no tool."""
    return -int(not run.calls)


SIGNALS: Mapping[str, Reader] = {
    one.__name__: one
    for one in (
        thanks, complaint, correction, complained, asked_again, went_on, unanswered, last_result, retried, cut_off,
        nothing_done,
    )
}  # fmt: skip


def heard(run: Transcript, after: Aftermath = NOTHING) -> dict[str, int]:
    """What each signal says of `run`, those left out that say nothing."""
    return {name: said for name, reader in SIGNALS.items() if (said := reader(run, after))}


def aftermath(run: Transcript, later: Iterable[Transcript]) -> Aftermath:
    """What `later` runs, oldest first, say of `run`."""
    after = NOTHING
    for one in later:
        after = follows(run, after, one)
    return after
