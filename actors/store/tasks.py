"""The pool of tasks that were made here: offered once, played, and set aside when nothing can be learned from them.

A task is noted with what it was made from, so that it goes when that is forgotten. The pool is bounded: what has been
retired makes room first, then what was set aside, then the oldest.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal, cast

import msgspec
from sqlalchemy import Connection, bindparam, case, func, select, update

from actors.messages import Task, decode, encode
from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.erasing import remove_tasks, task_sources, tombstoned

State = Literal["offered", "active", "set_aside", "retired"]
"""Never played; played; not played for a while; never played again."""
ROOM = 4096
"""Tasks in the pool at most."""


class TaskState(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the pool, and how it fared."""

    task: Task
    state: State = "offered"
    reason: str = ""
    """Why it is in this state."""
    tried: int = 0
    """Attempts that came to an outcome."""
    solved: int = 0
    successes: float = 0.0
    """Of these, those of late: discounted (`actors.statistics.beta_posterior`)."""
    failures: float = 0.0
    lost: int = 0
    """Attempts in a row that came to nothing."""
    agreed: int = 0
    """Rounds in a row whose attempts all ended alike."""
    last: float = 0.0
    """Unix seconds of the last round; 0: never."""
    again: float = 0.0
    """Unix seconds from which on a task that was set aside is tried again."""
    made_from: tuple[str, ...] = ()


def offer(connection: Connection, now: float, tasks: Sequence[Task], made_from: Collection[str] = ()) -> int:
    """Put `tasks` into the pool, but for those that rest on what was forgotten; how many are new."""
    sources = {task.id: {*task_sources(task), *made_from} for task in tasks}
    gone = tombstoned(connection, sorted(set[str]().union(*sources.values(), sources)))
    wanted = {task.id: task for task in tasks if not gone & {task.id, *sources[task.id]}}
    row = t.TaskRow
    known = {
        key for part in chunks(sorted(wanted)) for key in connection.scalars(select(row.id).where(row.id.in_(part)))
    }
    fresh = [task for key, task in wanted.items() if key not in known]
    add(connection, fresh, now, made_from)
    _bound(connection)
    return len(fresh)


def add(connection: Connection, tasks: Sequence[Task], now: float, made_from: Collection[str] = ()) -> None:
    """Insert those that are not there yet, with what they were made from."""
    rows = [
        {"id": task.id, "environment": task.environment, "origin": task.origin, "created": now, "body": encode(task)}
        for task in tasks
    ]
    insert_new(connection, table_of(t.TaskRow), rows)
    links = [
        {"task_id": task.id, "source": source} for task in tasks for source in sorted({*task_sources(task), *made_from})
    ]
    insert_new(connection, table_of(t.TaskSourceRow), links)


def task_states(connection: Connection, states: Collection[str] = (), limit: int = 4096) -> list[TaskState]:
    """Tasks in one of `states` (all if it is empty), those played longest ago first."""
    row = t.TaskRow
    wanted = select(row).where(row.origin != "heldout")
    if states:
        wanted = wanted.where(row.state.in_(sorted(states)))
    found = connection.execute(wanted.order_by(row.last, row.created, row.id).limit(limit)).all()
    sources: dict[str, list[str]] = {}
    link = t.TaskSourceRow
    for part in chunks([one.id for one in found]):
        for key, source in connection.execute(
            select(link.task_id, link.source).where(link.task_id.in_(part)).order_by(link.source)
        ):
            sources.setdefault(key, []).append(source)
    return [
        TaskState(
            task=cast(Task, decode(one.body)), state=one.state, reason=one.reason, tried=one.tried, solved=one.solved,
            successes=one.successes, failures=one.failures,
            lost=one.lost, agreed=one.agreed, last=one.last, again=one.again, made_from=tuple(sources.get(one.id, ())),
        )
        for one in found
    ]  # fmt: skip


def mark(connection: Connection, states: Sequence[TaskState]) -> None:
    """Replace what is noted of tasks; those that have gone stay gone."""
    if not states:
        return
    names = ("state", "reason", "tried", "solved", "successes", "failures", "lost", "agreed", "last", "again")
    row = table_of(t.TaskRow)
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
    connection.execute(
        update(row).where(row.c.id == bindparam("which")).values(**values),
        [{"which": one.task.id, **{f"new_{name}": getattr(one, name) for name in names}} for one in states],
    )


def task_counts(connection: Connection) -> dict[tuple[str, str], int]:
    """Tasks of the pool by (origin, state)."""
    row = t.TaskRow
    found = connection.execute(
        select(row.origin, row.state, func.count()).where(row.origin != "heldout").group_by(row.origin, row.state)
    )
    return {(origin, state): number for origin, state, number in found}


def _bound(connection: Connection) -> None:
    """Delete what is beyond `ROOM`."""
    row = t.TaskRow
    over = (connection.scalar(select(func.count()).select_from(row).where(row.origin != "heldout")) or 0) - ROOM
    if over <= 0:
        return
    rank = case((row.state == "retired", 0), (row.state == "set_aside", 1), else_=2)
    worst = connection.scalars(
        select(row.id).where(row.origin != "heldout").order_by(rank, row.created, row.id).limit(over)
    ).all()
    remove_tasks(connection, worst)
