"""Whether every run became exactly one trajectory.

The truth is which key the engine gave a response to; the stitcher never sees a key.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from actors.messages import Exchange, Trajectory
from actors.messages.spool import RawExchange
from actors.store import stitchable
from actors.trajectories.builder import build_all
from actors.trajectories.parsed_exchange import read_turn
from actors.trajectories.stitching import Limits, Stitcher
from adapters.intake.tap import exchange_from_raw
from tests.clients.catalogue import Client, Run

LIMITS = Limits(idle_seconds=60.0, max_feedback=100, feedback_seconds=60.0)


class Verdict(msgspec.Struct, kw_only=True):
    """A row of the table: the runs of one client, one mode and one script."""

    client: str
    endpoint: str
    mode: str
    script: str
    runs: int = 0
    calls: int = 0
    """Requests that the runs made."""
    trajectories: int = 0
    split: int = 0
    """Runs that are in more than one trajectory, or in none."""
    mixed: int = 0
    """Trajectories that hold calls of more than one run."""
    lost: int = 0
    """Calls that are in no trajectory."""
    min_confidence: float = 1.0
    trainable: int = 0
    """Trajectories with the tokens of every step, all in one row."""
    why_not: tuple[str, ...] = ()
    signals: dict[str, int] = {}
    """Links by what told of them; "none" is a call whose past was not found."""

    @property
    def whole(self) -> bool:
        """Each run is one trajectory, and each trajectory one run."""
        return not self.split and not self.mixed and not self.lost and self.trajectories == self.runs


def exchanges(records: Sequence[RawExchange]) -> list[Exchange]:
    """What the daemon makes of the spool."""
    return [exchange_from_raw(record) for record in records]


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


def judge(
    clients: Sequence[Client], runs: Sequence[Run], seen: Sequence[Exchange], truth: Mapping[str, Mapping[str, object]]
) -> list[Verdict]:
    """One verdict for each client, mode and script.

    Args:
        truth: by response id, with the `key` that it went to.
    """
    owner = {exchange.id: str(truth[exchange.response_id]["key"]) for exchange in seen}
    placed: dict[str, list[Trajectory]] = defaultdict(list)
    all_found = stitched(seen)
    for trajectory in all_found.trajectories:
        for key in {owner[step.exchange_id] for step in trajectory.steps}:
            placed[key].append(trajectory)
    calls: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in sorted(seen, key=lambda exchange: exchange.started):
        calls[owner[exchange.id]].append(exchange)

    endpoints = {client.name: client.endpoint for client in clients}
    rows: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        rows[run.client, run.mode, run.script].append(run)
    verdicts = []
    for (client, mode, script), members in rows.items():
        row = Verdict(client=client, endpoint=endpoints[client], mode=mode, script=script, runs=len(members))
        found = {t.id: t for run in members for t in placed[run.key]}
        _count(row, members, placed, calls, all_found.signals)
        for trajectory in found.values():
            _weigh(row, trajectory, {owner[step.exchange_id] for step in trajectory.steps})
        verdicts.append(row)
    return verdicts


def _count(
    row: Verdict,
    members: Sequence[Run],
    placed: Mapping[str, list[Trajectory]],
    calls: Mapping[str, list[Exchange]],
    signals: Mapping[str, str],
) -> None:
    for run in members:
        own = calls[run.key]
        row.calls += len(own)
        row.split += len(placed[run.key]) != 1
        stepped = {step.exchange_id for trajectory in placed[run.key] for step in trajectory.steps}
        row.lost += sum(exchange.id not in stepped for exchange in own)
        for signal in (signals[exchange.id] for exchange in own if exchange.id in signals):
            row.signals[signal] = row.signals.get(signal, 0) + 1


def _weigh(row: Verdict, trajectory: Trajectory, owners: set[str]) -> None:
    row.trajectories += 1
    row.min_confidence = min(row.min_confidence, trajectory.confidence)
    if len(owners) > 1:
        row.mixed += 1
    if trajectory.trainable and len(trajectory.rows) == 1:
        row.trainable += 1
    why = trajectory.why_not or (f"{len(trajectory.rows)} rows" if len(trajectory.rows) != 1 else "")
    if why and why not in row.why_not:
        row.why_not = (*row.why_not, why)
