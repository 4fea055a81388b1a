"""What may go for its age, and taking it out, some hundred rows a transaction.

A trajectory goes with its feedback; its calls go after it, never before: they alone tell whose key it came with, which
forgetting asks. What is never taken: trajectories that a batch may still use, or that one in training holds; sources of
lessons in use or on trial, and of tasks that are still played; orders that a version came of; everything audited; dead
letters. Ids of members stay with their order, for lineage.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, delete, exists, func, select
from sqlalchemy.sql.elements import ColumnElement

from actors.messages import Experience
from actors.store import outcomes, reading
from actors.store import tables as t
from actors.store.engine import chunks, table_of

PAGE = 200
"""Rows taken out in one transaction."""
_RETIRED = ("retired",)


class Removed(msgspec.Struct, frozen=True):
    """One step."""

    rows: int = 0
    bytes: int = 0
    """Of bodies."""


def protected(connection: Connection) -> set[str]:
    """Trajectories that something still rests on: asked once, before a row of steps."""
    kept: set[str] = set()
    latest: dict[str, Experience] = {}
    for lesson in reading.experiences(connection, None):
        if lesson.id not in latest or latest[lesson.id].revision < lesson.revision:
            latest[lesson.id] = lesson
    for lesson in latest.values():
        if lesson.state in ("candidate", "active"):
            kept.update(lesson.sources)
    task, source = t.TaskRow, t.TaskSourceRow
    kept.update(
        connection.scalars(
            select(source.source).join(task, task.id == source.task_id).where(task.state.not_in(_RETIRED))
        )
    )
    member, link = t.BatchMemberRow, t.CandidateBatchRow
    open_orders = select(t.BatchRow.id).where(~exists().where(link.batch_id == t.BatchRow.id))
    kept.update(connection.scalars(select(member.trajectory_id).where(member.batch_id.in_(open_orders))))
    return kept


def due_trajectories(connection: Connection, before: float, kept: set[str], limit: int) -> list[str]:
    """Some that ended before `before`, the oldest first; at most `limit`. Only reads, so that nobody waits for it."""
    row, due = t.TrajectoryRow, list[tuple[float, str]]()
    # By source, for that is how the index has them by time.
    for source in connection.scalars(select(row.source).distinct()).all():
        wanted = select(row.ended, row.id).where(row.source == source, row.ended < before, ~_waits())
        page = connection.execute(wanted.order_by(row.ended, row.id).limit(limit + len(kept)))
        due += [(ended, key) for ended, key in page if key not in kept]
    return [key for _, key in sorted(due)[:limit]]


def drop_trajectories(connection: Connection, ids: Sequence[str], before: float) -> Removed:
    """Take out those of `ids` that still may go, with their feedback."""
    row, rows, size = t.TrajectoryRow, 0, 0
    said: list[str] = []
    for part in chunks(ids):
        wanted = select(row.id, func.length(row.body)).where(row.id.in_(part), row.ended < before, ~_waits())
        going = connection.execute(wanted).all()
        keys = [key for key, _ in going]
        said += connection.scalars(select(t.FeedbackRow.id).where(t.FeedbackRow.joined.in_(keys)))
        connection.execute(delete(row).where(row.id.in_(keys)))
        outcomes.forget(connection, keys)
        rows, size = rows + len(keys), size + sum(one for _, one in going)
    _drop_feedback(connection, said)
    return Removed(rows, size)


def due_exchanges(connection: Connection, before: float, limit: int) -> list[str]:
    """Some calls from before `before` that no trajectory holds (any more). Only reads."""
    row = t.ExchangeRow
    # The order is an index's, which is read instead of the calls.
    wanted = select(row.id).where(row.started < before, ~_held()).order_by(row.trajectory_id, row.stitched, row.started)
    return list(connection.scalars(wanted.limit(limit)))


def drop_exchanges(connection: Connection, ids: Sequence[str], before: float) -> Removed:
    """Take out those of `ids` that still may go."""
    row, rows, size = t.ExchangeRow, 0, 0
    for part in chunks(ids):
        wanted = select(row.id, func.length(row.body)).where(row.id.in_(part), row.started < before, ~_held())
        going = connection.execute(wanted).all()
        connection.execute(delete(row).where(row.id.in_([key for key, _ in going])))
        rows, size = rows + len(going), size + sum(one for _, one in going)
    return Removed(rows, size)


def _waits() -> ColumnElement[bool]:
    """A batch may still use the trajectory."""
    row = t.TrajectoryRow
    return row.attributed & row.trainable & (row.batch_id == "") & (row.dropped == "")


def _held() -> ColumnElement[bool]:
    """The call is in a trajectory."""
    return exists().where(t.TrajectoryRow.id == t.ExchangeRow.trajectory_id)


def feedback(connection: Connection, before: float) -> Removed:
    """Take out some feedback from before `before` whose trajectory never came."""
    row = t.FeedbackRow
    wanted = select(row.id, func.length(row.body)).where(row.joined == "", row.received < before).limit(PAGE)
    page = connection.execute(wanted).all()
    _drop_feedback(connection, [key for key, _ in page])
    return Removed(len(page), sum(size for _, size in page))


def judgements(connection: Connection, before: float) -> Removed:
    """Take out some of the judge's words from before `before`."""
    row = t.JudgementRow
    page = connection.execute(select(row.key, func.length(row.body)).where(row.made < before).limit(PAGE)).all()
    for part in chunks([key for key, _ in page]):
        connection.execute(delete(row).where(row.key.in_(part)))
    return Removed(len(page), sum(size for _, size in page))


def batches(connection: Connection, before: float) -> Removed:
    """Take out some orders from before `before` that no version came of, but the newest, which may be in training."""
    row, member, link = t.BatchRow, t.BatchMemberRow, t.CandidateBatchRow
    newest = connection.scalar(select(func.max(row.created))) or 0.0
    unanswered: ColumnElement[bool] = ~exists().where(link.batch_id == row.id)
    wanted = select(row.id, func.length(row.body)).where(row.created < before, row.created < newest, unanswered)
    page = connection.execute(wanted.limit(PAGE)).all()
    for part in chunks([key for key, _ in page]):
        connection.execute(delete(member).where(member.batch_id.in_(part)))
        connection.execute(delete(row).where(row.id.in_(part)))
    return Removed(len(page), sum(size for _, size in page))


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


def _drop_feedback(connection: Connection, ids: Sequence[str]) -> None:
    for part in chunks(ids):
        connection.execute(delete(table_of(t.FeedbackRow)).where(t.FeedbackRow.id.in_(part)))
