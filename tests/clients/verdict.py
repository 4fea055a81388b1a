"""Whether every run became exactly one trajectory.

The truth is which key the engine gave a response to; the stitcher never sees a key.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from actors.messages import Exchange, Trajectory
from actors.store import stitchable
from actors.trajectories.builder import build_all
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Limits, Stitcher
from tests.clients.catalogue import Run

LIMITS = Limits(idle_seconds=60.0, max_feedback=100, feedback_seconds=60.0)


class Verdict(msgspec.Struct, kw_only=True):
    """A row of the table: the runs of one client, one mode and one script."""

    client: str
    mode: str
    script: str
    whole: bool
    """Each run is one trajectory, and each trajectory one run."""
    mixed: int
    """Trajectories that hold calls of more than one run."""
    lost: int
    """Calls that are in no trajectory."""
    min_confidence: float
    untrained: tuple[str, ...]
    """Why trajectories do not have the tokens of every step, all in one row; empty if all have."""
    signals: frozenset[str]
    """What told of links; "none" is a call whose past was not found."""


class Stitched(msgspec.Struct, frozen=True):
    """All trajectories, side calls as trajectories of their own, and the signal of each call that follows another."""

    trajectories: list[Trajectory]
    signals: dict[str, str]


def stitched(seen: Sequence[Exchange]) -> Stitched:
    """What the assembler makes of the exchanges once all is quiet."""
    stitcher = Stitcher(LIMITS)
    for exchange in seen:
        if stitchable(exchange):
            stitcher.add(read_turn(exchange), 0.0)
    closings = stitcher.close_due(LIMITS.idle_seconds + 1.0)
    return Stitched(
        [built.run for closing in closings for built in build_all(closing)],
        {turn: link.signal for closing in closings for turn, link in closing.links.items()},
    )


def judge(runs: Sequence[Run], seen: Sequence[Exchange], truth: Mapping[str, Mapping[str, object]]) -> list[Verdict]:
    """One verdict for each client, mode and script, from the `truth`: the `key` that each response id went to."""
    owner = {exchange.id: str(truth[exchange.response_id]["key"]) for exchange in seen}
    calls = Counter(owner.values())
    found = stitched(seen)
    placed: dict[str, list[Trajectory]] = defaultdict(list)
    owners = {one.id: Counter(owner[step.exchange_id] for step in one.steps) for one in found.trajectories}
    for one in found.trajectories:
        for key in owners[one.id]:
            placed[key].append(one)
    rows: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        rows[run.client, run.mode, run.script].append(run)
    verdicts = []
    for (client, mode, script), members in rows.items():
        keys = {run.key for run in members}
        own = {one.id: one for key in keys for one in placed[key]}
        mixed = sum(len(owners[each]) > 1 for each in own)
        lost = sum(calls[key] - sum(owners[one.id][key] for one in placed[key]) for key in keys)
        untrained = [one for one in own.values() if not one.trainable or len(one.rows) != 1]
        verdicts.append(
            Verdict(
                client=client,
                mode=mode,
                script=script,
                whole=not mixed and not lost and all(len(placed[key]) == 1 for key in keys) and len(own) == len(keys),
                mixed=mixed,
                lost=lost,
                min_confidence=min((one.confidence for one in own.values()), default=1.0),
                untrained=tuple({one.why_not or f"{len(one.rows)} rows" for one in untrained}),
                signals=frozenset(signal for each, signal in found.signals.items() if owner.get(each) in keys),
            )
        )
    return verdicts
