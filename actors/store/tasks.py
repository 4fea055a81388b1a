"""The pool of tasks that were made here: offered once, played, and set aside when nothing can be learned from them.

A task goes when what it was made from is forgotten. The pool is bounded: what has been retired makes room first, then
what was set aside, then the oldest.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, case, func, select, update

from actors.messages import Task
from actors.store.columns import among
from actors.store.engine import insert_new
from actors.store.erasing import remove_tasks, task_sources, tombstoned
from actors.store.tables import Tasks, TaskSources

State = Literal["offered", "active", "set_aside", "retired"]
"""Never played; played; not played for a while; never played again."""
ROOM = 4096
"""Tasks in the pool at most."""


class TaskState(msgspec.Struct, frozen=True):
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


def offer(connection: Connection, now: float, tasks: Sequence[Task], made_from: Collection[str] = ()) -> int:
    """Put `tasks` into the pool, but for those that rest on what was forgotten; how many are new."""
    sources = {task.id: {*task_sources(task), *made_from} for task in tasks}
    gone = tombstoned(connection, set(sources).union(*sources.values()))
    known = set(connection.scalars(select(Tasks.id).where(among(Tasks.id, sources))))
    fresh = {task.id: task for task in tasks if task.id not in known and not gone & {task.id, *sources[task.id]}}
    rows = [
        {"id": key, "origin": task.origin, "created": now, **_columns(TaskState(task))} for key, task in fresh.items()
    ]
    insert_new(connection, Tasks, rows)
    insert_new(connection, TaskSources, [{"task_id": key, "source": one} for key in fresh for one in sources[key]])
    # Beyond `ROOM`.
    rank = case((Tasks.state == "retired", 2), (Tasks.state == "set_aside", 1), else_=0)
    best = select(Tasks.id).order_by(rank, Tasks.created.desc(), Tasks.id.desc())
    remove_tasks(connection, connection.scalars(best.offset(ROOM)).all())
    return len(fresh)


def task_states(connection: Connection, states: Collection[str] = ()) -> list[TaskState]:
    """Tasks in one of `states` (all if it is empty), those played longest ago first."""
    wanted = select(Tasks.body)
    if states:
        wanted = wanted.where(among(Tasks.state, states))
    found = connection.scalars(wanted.order_by(Tasks.last, Tasks.created, Tasks.id))
    return [task_state(body) for body in found]


def task_state(body: bytes) -> TaskState:
    """What the `body` of a row says."""
    return msgspec.msgpack.decode(body, type=TaskState)


def mark(connection: Connection, states: Sequence[TaskState]) -> None:
    """Replace what is noted of tasks; those that have gone stay gone."""
    for one in states:
        connection.execute(update(Tasks).where(Tasks.id == one.task.id).values(_columns(one)))


def _columns(state: TaskState) -> dict[str, Any]:
    return {"state": state.state, "last": state.last, "body": msgspec.msgpack.encode(state)}


def task_count(connection: Connection, origin: str, state: str) -> int:
    """How many tasks of the pool are of this kind."""
    return connection.scalar(select(func.count()).where(Tasks.origin == origin, Tasks.state == state)) or 0
