"""What may go for its age, and taking it out, some hundred rows a transaction.

A trajectory goes with its feedback; its calls go after it, never before: they alone tell whose key it came with, which
forgetting asks. What is never taken: trajectories that a batch may still use, or that one in training holds; sources of
lessons in use or on trial, and of tasks that are still played; orders that a version came of; everything audited; dead
letters. Ids of members stay with their order, for lineage.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, delete, exists, func, select
from sqlalchemy.sql.elements import ColumnElement

from actors.store import outcomes, reading
from actors.store import tables as t

PAGE = 200
"""Rows taken out in one transaction."""
Kind = Literal["trajectories", "feedback", "exchanges", "judgements", "batches"]


class Removed(msgspec.Struct, frozen=True):
    """One step."""

    rows: int = 0
    bytes: int = 0
    """Of bodies."""


def protected(connection: Connection) -> set[str]:
    """Trajectories that something still rests on: asked once, before a row of steps."""
    kept: set[str] = set()
    for lesson in reading.experiences(connection):
        if lesson.state in ("candidate", "active"):
            kept.update(lesson.sources)
    task, source = t.TaskRow, t.TaskSourceRow
    played = select(source.source).join(task, task.id == source.task_id).where(task.state != "retired")
    kept.update(connection.scalars(played))
    member, link = t.BatchMemberRow, t.CandidateBatchRow
    open_orders = select(t.BatchRow.id).where(~exists().where(link.batch_id == t.BatchRow.id))
    kept.update(connection.scalars(select(member.trajectory_id).where(member.batch_id.in_(open_orders))))
    return kept


def due(
    connection: Connection, kind: Kind, before: float, limit: int, kept: Collection[str] = frozenset()
) -> list[str]:
    """Some rows of `kind` from before `before` (unix seconds) that may go and are not `kept`, at most `limit`. Only
    reads, so that nobody waits for it."""
    row, may_go, order = _ROWS[kind]
    wanted = select(row.id).where(*may_go(before)).order_by(*order)
    return [key for key in connection.scalars(wanted.limit(limit + len(kept))) if key not in kept][:limit]


def drop(connection: Connection, kind: Kind, ids: Sequence[str], before: float) -> Removed:
    """Take out those of `ids`, `PAGE` at most, that still may go, with what goes with them."""
    row, may_go, _ = _ROWS[kind]
    wanted = select(row.id, func.length(row.body)).where(row.id.in_(ids), *may_go(before))
    going = connection.execute(wanted).all()
    keys = [key for key, _ in going]
    connection.execute(delete(row).where(row.id.in_(keys)))
    if kind == "trajectories":
        connection.execute(delete(t.FeedbackRow).where(t.FeedbackRow.joined.in_(keys)))
        outcomes.forget(connection, keys)
    elif kind == "batches":
        connection.execute(delete(t.BatchMemberRow).where(t.BatchMemberRow.batch_id.in_(keys)))
    return Removed(len(keys), sum(size for _, size in going))


_run, _call, _said, _judged, _order = t.TrajectoryRow, t.ExchangeRow, t.FeedbackRow, t.JudgementRow, t.BatchRow
_waits = _run.attributed & _run.trainable & (_run.batch_id == "") & (_run.dropped == "")
"""A batch may still use the trajectory."""
_newest = select(func.max(_order.created)).scalar_subquery()
_ROWS: Mapping[Kind, tuple[Any, Callable[[float], tuple[ColumnElement[bool], ...]], tuple[Any, ...]]] = {
    "trajectories": (_run, lambda before: (_run.ended < before, ~_waits), (_run.ended,)),
    # Whose trajectory never came; the other goes with its own.
    "feedback": (_said, lambda before: (_said.joined == "", _said.received < before), ()),
    # That no trajectory holds (any more). The order is an index's, which is read instead of the calls.
    "exchanges": (
        _call, lambda before: (_call.started < before, ~exists().where(_run.id == _call.trajectory_id)),
        (_call.trajectory_id, _call.stitched, _call.started),
    ),
    "judgements": (_judged, lambda before: (_judged.made < before,), ()),
    # That no version came of, but the newest, which may be in training.
    "batches": (
        _order,
        lambda before: (
            _order.created < before, _order.created < _newest,
            ~exists().where(t.CandidateBatchRow.batch_id == _order.id),
        ),
        (),
    ),
}  # fmt: skip
"""Where the rows of a kind are, which of them may go, and in what order they are looked for."""


def on_trial(connection: Connection) -> set[int]:
    """Versions newer than the newest that the gate has decided on."""
    row, verdict = t.CandidateRow, t.VerdictRow
    decided = connection.scalar(select(func.max(verdict.version)).where(verdict.decision != "hold"))
    return set(connection.scalars(select(row.version).where(row.version > (-1 if decided is None else decided))))


def served_last(connection: Connection, number: int) -> set[int]:
    """The `number` versions that each engine served last, the one that it serves among them."""
    by_engine: dict[str, list[int]] = {}
    for one in reading.servings(connection, None, 10_000):  # newest first
        versions = by_engine.setdefault(one.engine, [])
        if one.result in ("started", "swapped") and one.version not in versions and len(versions) < number:
            versions.append(one.version)
    return {version for versions in by_engine.values() for version in versions}


def used_bytes(connection: Connection) -> tuple[int, int]:
    """Bytes of the database that hold something, and bytes that it takes up."""
    if connection.dialect.name == "sqlite":
        size, pages, free = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_size", "page_count", "freelist_count")
        )
        return (pages - free) * size, pages * size
    size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
    return size, size


def kept_since(connection: Connection) -> tuple[float | None, float | None]:
    """Unix seconds at which the oldest trajectory ended and the oldest call began; None if there is none."""
    run, call = t.TrajectoryRow, t.ExchangeRow
    return connection.scalar(select(func.min(run.ended))), connection.scalar(select(func.min(call.started)))
