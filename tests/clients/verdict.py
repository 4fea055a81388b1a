"""Whether every run became exactly one trajectory.

The truth is which key the engine gave a response to; the stitcher never sees a key.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from actors.messages import Exchange, Trajectory
from actors.store import stitchable
from actors.trajectories.builder import build
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Limits, Stitcher
from tests.clients.catalogue import Run

LIMITS = Limits(idle_seconds=60.0, max_feedback=100)


class Verdict(msgspec.Struct, kw_only=True):
    """What became of a run."""

    run: Run
    whole: bool
    """It is one trajectory, and that trajectory is this run."""
    mixed: bool
    """It shares a trajectory with another run."""
    lost: int
    """Calls that are in no trajectory."""
    confidence: float
    untrained: tuple[str, ...]
    """Why its trajectories do not have the tokens of every step, all in one row; empty if they have."""
    signals: frozenset[str]
    """What told of links; "none" is a call whose past was not found."""


class Stitched(msgspec.Struct, frozen=True):
    """All trajectories, each with its calls and those beside it, and the signal of each call that follows another."""

    trajectories: list[tuple[Trajectory, list[str]]]
    signals: dict[str, str]


def stitched(seen: Sequence[Exchange]) -> Stitched:
    """What the assembler makes of the exchanges once all is quiet."""
    stitcher = Stitcher(LIMITS)
    for exchange in seen:
        if stitchable(exchange):
            stitcher.add(read_turn(exchange), 0.0)
    closings = stitcher.close_due(LIMITS.idle_seconds + 1.0)
    return Stitched(
        [(build(closing).run, [turn.id for turn in closing.turns]) for closing in closings],
        {turn: link.signal for closing in closings for turn, link in closing.links.items()},
    )


def judge(runs: Sequence[Run], seen: Sequence[Exchange], truth: Mapping[str, Mapping[str, object]]) -> list[Verdict]:
    """One verdict a run, from the `truth`: the `key` that each response id went to."""
    owner = {exchange.id: str(truth[exchange.response_id]["key"]) for exchange in seen}
    calls = Counter(owner.values())
    found = stitched(seen)
    owners = [(one, Counter(owner[call] for call in calls)) for one, calls in found.trajectories]
    verdicts = []
    for run in runs:
        own = [(one, keys) for one, keys in owners if run.key in keys]
        mixed = any(len(keys) > 1 for _, keys in own)
        lost = calls[run.key] - sum(keys[run.key] for _, keys in own)
        untrained = [one for one, _ in own if not one.trainable or len(one.rows) != 1]
        verdicts.append(
            Verdict(
                run=run,
                whole=len(own) == 1 and not mixed and len(own[0][0].steps) == calls[run.key],
                mixed=mixed,
                lost=lost,
                confidence=min((one.confidence for one, _ in own), default=1.0),
                untrained=tuple({one.why_not or f"{len(one.rows)} rows" for one in untrained}),
                signals=frozenset(signal for each, signal in found.signals.items() if owner.get(each) == run.key),
            )
        )
    return verdicts
