"""What was reported of one run, when, and what came of it: `evolved why RUN`."""

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Attributed, Trajectory
from actors.statistics.parties import party_of
from actors.store import reading
from actors.store import tables as t
from actors.store.columns import lookup
from actors.store.stories import Order, orders_of


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was said, also what made no revision."""

    id: str
    received: float
    kind: str
    outcome: float | None
    step: int | None
    final: bool
    did: str
    """What it did to the outcome (`actors.store.outcomes.Did`); empty: it is not about that."""


class RunStory(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    trajectory_id: str
    others: int
    """Older runs that the name fits as well."""
    source: str
    tenant: str
    party: str
    started: float
    ended: float
    closed_by: str
    min_version: int
    max_version: int
    side_of: str
    attributed: bool
    why_not: str
    """Why its tokens cannot be trained on."""
    cut_off: str
    """What cut its last answer off, where that leaves its outcome without meaning."""
    dropped: str
    """Why no order has it or will."""
    came: str
    """What came of it in an order: learned, or why nothing was; empty before an answer."""
    outcome: float | None
    revision: int
    """Of the outcome: how often it was corrected."""
    told: float | None
    """When the report came that the outcome is of, if that was after the run had closed; else None."""
    guessed: float | None
    """Provisional outcome that it was ordered with, if it was with one."""
    used: dict[str, int]
    """By actor that has taken the outcome in: the newest revision that it has."""
    reports: tuple[Report, ...]
    orders: tuple[Order, ...]
    lessons: tuple[str, ...]
    """Lessons that name it as a source, with their state: `ID (active)`."""
    tasks: tuple[str, ...]
    """The same of tasks."""


class StillOpen(msgspec.Struct, frozen=True, kw_only=True):
    """The name is known, and its run is not over, or not seen yet."""

    what: str


def run_story(connection: Connection, name: str) -> RunStory | StillOpen | None:
    """The newest run that `name` fits: its id, that of a call or a response in it, an id that its caller gave, or a
    report's; None if nothing has that name."""
    found = list(dict.fromkeys(_named(connection, name)))
    ids = [key for key in found if key]
    if not ids:
        return StillOpen(what="its run is still open, or was never seen") if found else None
    runs = [(key, row) for key in ids if (row := _row(connection, key)) is not None]
    if not runs:
        return None
    key, row = max(runs, key=lambda one: (one[1].ended, one[0]))
    body = reading.trajectory(connection, key)
    run = body.trajectory if isinstance(body, Attributed) else body
    known = row._asdict()
    return RunStory(
        trajectory_id=key, others=len(runs) - 1, party=party_of(row.tenant, known.pop("caller")), **known,
        cut_off=run.cut_off if isinstance(run, Trajectory) else "", used=_used(connection, key),
        reports=_reports(connection, key), orders=orders_of(connection, key), lessons=_lessons(connection, key),
        tasks=_tasks(connection, key),
    )  # fmt: skip


def _named(connection: Connection, name: str) -> Iterator[str]:
    """Trajectories that `name` fits; empty for what has none yet."""
    run, call, said = t.TrajectoryRow, t.ExchangeRow, t.FeedbackRow
    yield from connection.scalars(select(run.id).where(run.id == name))
    yield from connection.scalars(select(call.trajectory_id).where(call.id == name))
    yield from connection.scalars(select(said.joined).where(said.id == name))
    # Tenant by tenant, as the indexes have them; and in words that say which rows the partial ones hold.
    for tenant in connection.scalars(select(call.tenant).distinct()).all():
        for column in (call.response_id, call.custom_id, call.explicit):
            wanted = select(call.trajectory_id).where(call.tenant == tenant, column == lookup(name), column != "")
            yield from connection.scalars(wanted)


def _row(connection: Connection, key: str) -> Any:
    row = t.TrajectoryRow
    wanted = select(
        row.source, row.tenant, row.caller, row.started, row.ended, row.closed_by, row.min_version, row.max_version,
        row.side_of, row.attributed, row.why_not, row.dropped, row.came, row.outcome, row.revision, row.told,
        row.guessed,
    ).where(row.id == key)  # fmt: skip
    return connection.execute(wanted).first()


def _used(connection: Connection, key: str) -> dict[str, int]:
    use = t.UseRow
    wanted = select(use.actor, func.max(use.revision)).where(use.trajectory_id == key).group_by(use.actor)
    return {actor: revision for actor, revision in connection.execute(wanted.order_by(use.actor))}


def _reports(connection: Connection, key: str) -> tuple[Report, ...]:
    row = t.FeedbackRow
    did = {one.id: one.effect for one in connection.execute(select(row.id, row.effect).where(row.joined == key))}
    return tuple(
        Report(
            id=one.id, received=one.received, kind=one.kind, outcome=one.outcome, step=one.step, final=one.final,
            did=did.get(one.id, ""),
        )
        for one in reading.feedback_for(connection, key)
    )  # fmt: skip


def _lessons(connection: Connection, key: str) -> tuple[str, ...]:
    found = reading.experiences(connection, None)
    return tuple(f"{lesson.id} ({lesson.state})" for lesson in found if key in lesson.sources)


def _tasks(connection: Connection, key: str) -> tuple[str, ...]:
    task, source = t.TaskRow, t.TaskSourceRow
    wanted = select(task.id, task.state).join(source, source.task_id == task.id).where(source.source == key)
    return tuple(f"{one.id} ({one.state})" for one in connection.execute(wanted.order_by(task.id)))
