"""Feedback whose trajectory is not known yet: the ids that it names, until a trajectory with one of them is written.

The assembler holds such feedback in memory, for a time and up to a number. What it had to let go of is found here when
its trajectory closes, be it days later.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, select

from actors.messages import Feedback, Trajectory, decode
from actors.store import tables as t
from actors.store.columns import lookup
from actors.store.engine import chunks, insert_new, table_of
from actors.store.records import Joined

_EXCHANGE, _RESPONSE, _CUSTOM, _TRAJECTORY = "x", "r", "u", "t"
"""Kinds of ids, the first letter of a name."""


def wait(connection: Connection, feedback: Sequence[Feedback]) -> None:
    """Note what `feedback` names, before it is written; what has been written before is not noted again."""
    known: set[str] = set()
    for part in chunks([said.id for said in feedback]):
        known.update(connection.scalars(select(t.FeedbackRow.id).where(t.FeedbackRow.id.in_(part))))
    note(connection, [said for said in feedback if said.id not in known])


def note(connection: Connection, feedback: Sequence[Feedback]) -> None:
    """Note what `feedback` names."""
    rows = [
        {"tenant": said.tenant, "name": kind + lookup(value), "feedback_id": said.id}
        for said in feedback
        for kind, value in (
            (_EXCHANGE, said.exchange_id), (_RESPONSE, said.response_id), (_CUSTOM, said.custom_id),
            (_TRAJECTORY, said.trajectory_id),
        )
        if value
    ]  # fmt: skip
    insert_new(connection, table_of(t.WaitingNameRow), rows)


def forget(connection: Connection, feedback_ids: Sequence[str]) -> None:
    """They have found their place."""
    for part in chunks(feedback_ids):
        connection.execute(delete(t.WaitingNameRow).where(t.WaitingNameRow.feedback_id.in_(part)))


def claimed(connection: Connection, runs: Sequence[Trajectory], heard: Collection[str]) -> list[Joined]:
    """The feedback that waited for one of `runs`, which are written: what says most of an outcome first."""
    meant = _names(connection, [run for run in runs if run.source == "production"])
    found: dict[str, str] = {}
    row = t.WaitingNameRow
    for part in chunks(sorted({name for _, name in meant})):
        rows = connection.execute(
            select(row.tenant, row.name, row.feedback_id).where(row.name.in_(part)).order_by(row.name)
        )
        found |= {key: meant[tenant, name] for tenant, name, key in rows if (tenant, name) in meant}
    waiting = _read(connection, found.keys() - set(heard))
    return [Joined(id=said.id, trajectory_id=found[said.id], outcome=_outcome(said)) for said in waiting]


def _names(connection: Connection, runs: Sequence[Trajectory]) -> dict[tuple[str, str], str]:
    """Which of `runs` is meant by (tenant, name)."""
    by_call = {step.exchange_id: run for run in runs for step in run.steps}
    meant: dict[tuple[str, str], str] = {}
    row = t.ExchangeRow
    for part in chunks(sorted(by_call)):
        for key, custom, explicit in connection.execute(
            select(row.id, row.custom_id, row.explicit).where(
                row.id.in_(part), (row.custom_id != "") | (row.explicit != "")
            )
        ):
            run = by_call[key]
            if custom:
                meant[run.tenant, _CUSTOM + custom] = run.id
            # Who names the trajectory means its main line.
            if explicit and not run.side_of:
                meant[run.tenant, _TRAJECTORY + explicit] = run.id
    for run in runs:
        for step in run.steps:
            meant[run.tenant, _EXCHANGE + lookup(step.exchange_id)] = run.id
            if step.response_id:
                meant[run.tenant, _RESPONSE + lookup(step.response_id)] = run.id
        if not run.side_of:
            meant[run.tenant, _TRAJECTORY + lookup(run.id)] = run.id
    return meant


def _read(connection: Connection, ids: Collection[str]) -> list[Feedback]:
    row = t.FeedbackRow
    found: list[Feedback] = []
    for part in chunks(sorted(ids)):
        bodies = connection.scalars(select(row.body).where(row.id.in_(part), row.joined == "").order_by(row.id))
        found += [said for said in map(decode, bodies) if isinstance(said, Feedback)]
    # The first outcome is what a trajectory takes over: a final one before others, the newest before older ones.
    return sorted(
        found, key=lambda said: (said.kind == "outcome" and said.final, said.final, said.received), reverse=True
    )


def _outcome(said: Feedback) -> float | None:
    """What it says of the whole."""
    return None if said.kind == "step" or said.step is not None else said.outcome
