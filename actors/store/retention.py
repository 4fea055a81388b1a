"""What may go for its age, and taking it out, some hundred rows a transaction.

A trajectory goes with its feedback; its calls go after it, never before: forgetting finds it by them. What is never
taken: trajectories that a batch may still use, or that one in training holds; sources of lessons in use or on trial,
and of tasks that are still played; orders that a version came of; everything audited; dead letters.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select, true

from actors.store import outcomes
from actors.store.lessons import experiences
from actors.store.tables import (
    IN_AN_ORDER,
    Batches,
    Calls,
    CandidateBatches,
    Judgements,
    Reports,
    Runs,
    Tasks,
    TaskSources,
)

PAGE = 200
"""Rows taken out in one transaction."""
Kind = Literal["trajectories", "feedback", "exchanges", "judgements", "batches"]


_waits = Runs.attributed & Runs.trainable & (Runs.batch_id == "") & (Runs.came == "")
"""A batch may still use the trajectory."""
_no_version = ~exists().where(CandidateBatches.batch_id == Batches.id)
_ROWS: Mapping[Kind, tuple[Any, Any, ColumnElement[bool], tuple[Any, ...]]] = {
    "trajectories": (Runs, Runs.ended, ~_waits, (Runs.ended,)),
    # Whose trajectory never came; the other goes with its own.
    "feedback": (Reports, Reports.received, Reports.joined == "", ()),
    # That no trajectory holds (any more). The order is an index's, which is read instead of the calls.
    "exchanges": (
        Calls, Calls.started, ~exists().where(Runs.id == Calls.trajectory_id),
        (Calls.trajectory_id, Calls.stitched, Calls.started),
    ),
    "judgements": (Judgements, Judgements.made, true(), ()),
    # That no version came of, but the newest, which may be in training.
    "batches": (
        Batches, Batches.created,
        _no_version & (Batches.created < select(func.max(Batches.created)).scalar_subquery()), (),
    ),
}  # fmt: skip
"""Where the rows of a kind are, their time, which of them may go, and in what order they are looked for."""


def protected(connection: Connection) -> set[str]:
    """Trajectories that something still rests on: asked once, before a row of steps."""
    lessons = [lesson for lesson in experiences(connection) if lesson.state in ("candidate", "active")]
    played = select(TaskSources.source).join(Tasks, Tasks.id == TaskSources.task_id).where(Tasks.state != "retired")
    open_orders = select(Batches.id).where(_no_version)
    training = select(Runs.id).where(IN_AN_ORDER, Runs.batch_id.in_(open_orders))
    return {
        *(source for lesson in lessons for source in lesson.sources),
        *connection.scalars(played), *connection.scalars(training),
    }  # fmt: skip


def due(
    connection: Connection, kind: Kind, before: float, limit: int, kept: Collection[str] = frozenset()
) -> list[str]:
    """Some rows of `kind` from before `before` (unix seconds) that may go and are not `kept`, at most `limit`. Only
    reads, so that nobody waits for it."""
    table, time, may_go, order = _ROWS[kind]
    wanted = select(table.id).where(time < before, may_go).order_by(*order).limit(limit + len(kept))
    return [key for key in connection.scalars(wanted) if key not in kept][:limit]


def drop(connection: Connection, kind: Kind, ids: Sequence[str], before: float) -> int:
    """Take out those of `ids`, `PAGE` at most, that still may go, with what goes with them; how many went."""
    table, time, may_go, _ = _ROWS[kind]
    going = connection.scalars(select(table.id).where(table.id.in_(ids), time < before, may_go)).all()
    connection.execute(delete(table).where(table.id.in_(going)))
    if kind == "trajectories":
        connection.execute(delete(Reports).where(Reports.joined.in_(going)))
        outcomes.forget(connection, going)
    return len(going)


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
    return connection.scalar(select(func.min(Runs.ended))), connection.scalar(select(func.min(Calls.started)))
