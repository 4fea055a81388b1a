"""Feedback whose trajectory is not known yet: found by the ids that it names when a trajectory with one is written.

The assembler holds such feedback in memory, for a time and up to a number. What it had to let go of is found here when
its trajectory closes, be it days later.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlalchemy import Connection, select

from actors.messages import Feedback, Trajectory, decode
from actors.store import tables as t
from actors.store.columns import lookup
from actors.store.engine import chunks
from actors.store.records import Joined

TRAJECTORY, CUSTOM, RESPONSE, EXCHANGE = "trajectory_id", "custom_id", "response_id", "exchange_id"
_KINDS = (TRAJECTORY, CUSTOM, RESPONSE, EXCHANGE)
"""Kinds of ids, the columns that have them; of two that lead to different trajectories the later is meant."""
Name = tuple[str, str]
"""A kind, and an id as `lookup` has it."""


def named(said: Feedback) -> dict[str, str | None]:
    """What `said` names, by column."""
    return {kind: lookup(value) if (value := getattr(said, kind)) else None for kind in _KINDS}


def settled() -> dict[str, None]:
    """The columns of what has found its trajectory."""
    return dict.fromkeys(_KINDS)


def waiting(connection: Connection, names: Iterable[Name]) -> Iterator[tuple[str, str, Name]]:
    """Feedback that names one of `names` and waits: its id, its tenant and the name."""
    wanted: dict[str, set[str]] = {}
    for kind, value in names:
        wanted.setdefault(kind, set()).add(value)
    row = t.FeedbackRow
    for kind in _KINDS:
        column = getattr(row, kind)
        for part in chunks(sorted(wanted.get(kind, ()))):
            for key, tenant, value in connection.execute(select(row.id, row.tenant, column).where(column.in_(part))):
                yield key, tenant, (kind, value)


def claimed(connection: Connection, runs: Sequence[Trajectory], heard: Collection[str]) -> list[Joined]:
    """The feedback that waited for one of `runs`, which are written: what says most of an outcome first."""
    meant = _names(connection, [run for run in runs if run.source == "production"])
    found = {
        key: meant[tenant, name]
        for key, tenant, name in waiting(connection, {name for _, name in meant})
        if (tenant, name) in meant
    }
    reports = _read(connection, found.keys() - set(heard))
    return [Joined(id=said.id, trajectory_id=found[said.id], outcome=_outcome(said)) for said in reports]


def _names(connection: Connection, runs: Sequence[Trajectory]) -> dict[tuple[str, Name], str]:
    """Which of `runs` is meant by (tenant, name)."""
    by_call = {step.exchange_id: run for run in runs for step in run.steps}
    meant: dict[tuple[str, Name], str] = {}
    row = t.ExchangeRow
    for part in chunks(sorted(by_call)):
        for key, custom, explicit in connection.execute(
            select(row.id, row.custom_id, row.explicit).where(
                row.id.in_(part), (row.custom_id != "") | (row.explicit != "")
            )
        ):
            run = by_call[key]
            if custom:
                meant[run.tenant, (CUSTOM, custom)] = run.id
            # Who names the trajectory means its main line.
            if explicit and not run.side_of:
                meant[run.tenant, (TRAJECTORY, explicit)] = run.id
    for run in runs:
        for step in run.steps:
            meant[run.tenant, (EXCHANGE, lookup(step.exchange_id))] = run.id
            if step.response_id:
                meant[run.tenant, (RESPONSE, lookup(step.response_id))] = run.id
        if not run.side_of:
            meant[run.tenant, (TRAJECTORY, lookup(run.id))] = run.id
    return meant


def _read(connection: Connection, ids: Collection[str]) -> list[Feedback]:
    row = t.FeedbackRow
    found: list[Feedback] = []
    for part in chunks(sorted(ids)):
        bodies = connection.scalars(select(row.body).where(row.id.in_(part)).order_by(row.id))
        found += [said for said in map(decode, bodies) if isinstance(said, Feedback)]
    # The first outcome is what a trajectory takes over: a final one before others, the newest before older ones.
    return sorted(
        found, key=lambda said: (said.kind == "outcome" and said.final, said.final, said.received), reverse=True
    )


def _outcome(said: Feedback) -> float | None:
    """What it says of the whole."""
    return None if said.kind == "step" or said.step is not None else said.outcome
