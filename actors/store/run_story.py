"""What was reported of one run, when, and what came of it: `evolved why RUN`."""

from collections.abc import Iterator
from typing import Literal

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Attributed, Trajectory, decode
from actors.statistics.parties import party_of
from actors.store.columns import among, lookup
from actors.store.lessons import experiences
from actors.store.stories import Order, order_of
from actors.store.tables import Calls, Reports, Runs, Tasks, TaskSources, Uses


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was said, also what made no revision."""

    id: str
    received: float
    kind: str
    outcome: float | None
    step: int | None
    final: bool
    text: str
    did: str
    """What it did to the outcome (`actors.store.outcomes.Did`); empty: it is not about that."""


class RunStory(msgspec.Struct, frozen=True, kw_only=True):
    """One run: columns of its row (`actors.store.tables.Runs`), and what else is told of it."""

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
    attributed: bool
    why_not: str
    cut_off: str
    """What cut its last answer off, where that leaves its outcome without meaning."""
    came: str
    outcome: float | None
    revision: int
    told: float | None
    guessed: float | None
    used: dict[str, int]
    """By actor that has taken the outcome in: the newest revision that it has."""
    reports: tuple[Report, ...]
    order: Order | None
    """That holds it."""
    lessons: tuple[str, ...]
    """Lessons that name it as a source, with their state: `ID (active)`."""
    tasks: tuple[str, ...]
    """The same of tasks."""


def run_story(connection: Connection, name: str) -> RunStory | Literal["open"] | None:
    """The run with the id `name`, or the newest that it fits: that of a call or a response in it, an id that its caller
    gave, or a report's; "open" if that is not over, or was not seen yet, None if nothing has that name."""
    found = set(_named(connection, name))
    wanted = select(*Runs.__table__.columns).where(among(Runs.id, found))
    runs = connection.execute(wanted.order_by((Runs.id == name).desc(), Runs.ended.desc(), Runs.id.desc())).all()
    if not runs:
        return "open" if found == {""} else None
    newest = runs[0]
    body = decode(newest.body)
    run = body.trajectory if isinstance(body, Attributed) else body
    order = order_of(connection, newest.batch_id) if newest.batch_id else None
    more = {
        "trajectory_id": newest.id, "others": len(runs) - 1, "party": party_of(newest.tenant, newest.caller),
        "cut_off": run.cut_off if isinstance(run, Trajectory) else "", "used": _used(connection, newest.id),
        "reports": _reports(connection, newest.id), "order": order,
        "lessons": [f"{one.id} ({one.state})" for one in experiences(connection) if newest.id in one.sources],
        "tasks": _tasks(connection, newest.id),
    }  # fmt: skip
    return msgspec.convert({**newest._mapping, **more}, RunStory)


def _named(connection: Connection, name: str) -> Iterator[str]:
    """Trajectories that `name` fits; empty for what has none yet."""
    yield from connection.scalars(select(Runs.id).where(Runs.id == name))
    yield from connection.scalars(select(Calls.trajectory_id).where(Calls.id == name))
    yield from connection.scalars(select(Reports.joined).where(Reports.id == name))
    # Tenant by tenant, as the indexes have them; and in words that say which rows the partial ones hold.
    for tenant in connection.scalars(select(Calls.tenant).distinct()).all():
        for column in (Calls.response_id, Calls.custom_id, Calls.explicit):
            wanted = select(Calls.trajectory_id).where(Calls.tenant == tenant, column == lookup(name), column != "")
            yield from connection.scalars(wanted)


def _used(connection: Connection, key: str) -> dict[str, int]:
    wanted = select(Uses.actor, func.max(Uses.revision)).where(Uses.trajectory_id == key).group_by(Uses.actor)
    return {actor: revision for actor, revision in connection.execute(wanted.order_by(Uses.actor))}


def _reports(connection: Connection, key: str) -> list[Report]:
    wanted = select(Reports.body, Reports.effect).where(Reports.joined == key)
    found = connection.execute(wanted.order_by(Reports.received, Reports.id))
    return [msgspec.convert({**msgspec.structs.asdict(decode(body)), "did": did}, Report) for body, did in found]


def _tasks(connection: Connection, key: str) -> list[str]:
    wanted = select(Tasks.id, Tasks.state).join(TaskSources, TaskSources.task_id == Tasks.id)
    found = connection.execute(wanted.where(TaskSources.source == key).order_by(Tasks.id))
    return [f"{one.id} ({one.state})" for one in found]
