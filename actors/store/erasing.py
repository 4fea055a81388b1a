"""Erasing by source: what belongs to a trajectory, a tenant or an agent's key, and taking it out for good.

    find -> what would go, and which weights saw it  ->  erase, part by part  ->  tombstones keep it from coming back

A trajectory takes with it its calls, what was said of it, its side calls, and the trajectories that continue its
conversation. Ids stay, in lineage and audit trail. Tombstones live until no stream can deliver a record again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select, true, update

from actors.messages import (
    Attributed,
    BatchOrder,
    Exchange,
    Experience,
    Feedback,
    Message,
    MessageError,
    Task,
    Trajectory,
    decode,
)
from actors.store import outcomes
from actors.store import tables as t
from actors.store.columns import lookup
from actors.store.engine import chunks, insert_new, table_of
from actors.store.stories import spans
from actors.store.waiting import CUSTOM, EXCHANGE, RESPONSE, TRAJECTORY, waiting

_PAGE = 500
_ID, _TENANT, _CALLER = "id", "tenant", "caller"


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Whose records are meant; of several fields each adds its own."""

    trajectories: tuple[str, ...] = ()
    tenant: str = ""
    caller: str = ""
    """Id of an agent key."""


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """A weight version that saw something of what is forgotten."""

    version: int
    trajectories: int
    """How many of them it was trained on itself; 0: a version that it descends from was."""
    engines: tuple[str, ...] = ()
    """Where it serves now."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to a selector: ids of records that are there, and what they were used for."""

    trajectories: tuple[str, ...] = ()
    """Those asked for by id included, also if they are gone: experience may still rest on them."""
    gone: int = 0
    """How many of these the store no longer has."""
    exchanges: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    """Orders that hold some of the trajectories."""
    unanswered: tuple[str, ...] = ()
    """Those of the orders that no version has come of: one may, if the learner had read its file already."""
    files: tuple[str, ...] = ()
    """Paths of the orders' batch files."""
    versions: tuple[Touched, ...] = ()

    @property
    def empty(self) -> bool:
        return not (len(self.trajectories) - self.gone or self.exchanges or self.feedback)


def find(connection: Connection, selector: Selector) -> Scope:
    """Everything that belongs to `selector`."""
    run, call = t.TrajectoryRow, t.ExchangeRow
    runs, calls = set(selector.trajectories), set[str]()
    if selector.tenant:
        runs.update(connection.scalars(select(run.id).where(run.tenant == selector.tenant)))
        calls.update(connection.scalars(select(call.id).where(call.tenant == selector.tenant)))
    if selector.caller:
        mine = select(call.id, call.trajectory_id).where(call.caller == selector.caller, call.caller != "")
        for key, trajectory_id in connection.execute(mine):
            calls.add(key)
            runs.update({trajectory_id} - {""})
    if selector.caller or selector.trajectories:
        runs |= _kindred(connection, runs)
    for part in chunks(sorted(runs)):
        calls.update(connection.scalars(select(call.id).where(call.trajectory_id.in_(part))))
    there = sum(len(connection.scalars(select(run.id).where(run.id.in_(part))).all()) for part in chunks(sorted(runs)))
    batches, unanswered, files = _orders(connection, runs)
    return Scope(
        trajectories=tuple(sorted(runs)),
        gone=len(runs) - there,
        exchanges=tuple(sorted(calls)),
        feedback=tuple(sorted(_feedback(connection, selector, runs, calls))),
        batches=tuple(batches),
        unanswered=tuple(unanswered),
        files=tuple(files),
        versions=tuple(_touched(connection, runs)),
    )


def _kindred(connection: Connection, runs: set[str]) -> set[str]:
    """Side calls of `runs`, and what goes on with them, to any depth."""
    row, known, fresh = t.TrajectoryRow, set[str](), set(runs)
    while fresh:
        known |= fresh
        children = set[str]()
        for parent in (row.side_of, row.continues):
            for part in chunks(sorted(fresh)):
                children.update(connection.scalars(select(row.id).where(parent.in_(part), parent != "")))
        fresh = children - known
    return known


def _feedback(connection: Connection, selector: Selector, runs: set[str], calls: set[str]) -> set[str]:
    row, found = t.FeedbackRow, set[str]()
    if selector.tenant:
        found.update(connection.scalars(select(row.id).where(row.tenant == selector.tenant)))
    for part in chunks(sorted(runs)):
        found.update(connection.scalars(select(row.id).where(row.joined.in_(part))))
    call = t.ExchangeRow
    names = {("", (TRAJECTORY, lookup(key))) for key in runs}  # nobody else's, whatever the tenant
    for part in chunks(sorted(calls)):
        columns = call.tenant, call.id, call.response_id, call.custom_id, call.explicit
        for tenant, key, *others in connection.execute(select(*columns).where(call.id.in_(part))):
            meant = zip((EXCHANGE, RESPONSE, CUSTOM, TRAJECTORY), (lookup(key), *others), strict=True)
            names |= {(tenant, name) for name in meant if name[1]}
    for key, tenant, name in waiting(connection, {name for _, name in names}):
        if {(tenant, name), ("", name)} & names:
            found.add(key)
    return found


def _orders(connection: Connection, runs: set[str]) -> tuple[list[str], list[str], list[str]]:
    member, ids = t.BatchMemberRow, set[str]()
    for part in chunks(sorted(runs)):
        ids.update(connection.scalars(select(member.batch_id).where(member.trajectory_id.in_(part))))
    files, answered, link = list[str](), set[str](), t.CandidateBatchRow
    for part in chunks(sorted(ids)):
        answered.update(connection.scalars(select(link.batch_id).where(link.batch_id.in_(part))))
        wanted = select(t.BatchRow.body).where(t.BatchRow.id.in_(part)).order_by(t.BatchRow.id)
        orders = [decode(body) for body in connection.scalars(wanted)]
        files += [order.path for order in orders if isinstance(order, BatchOrder)]
    return sorted(ids), sorted(ids - answered), files


def _touched(connection: Connection, runs: set[str]) -> list[Touched]:
    """Versions trained on some of `runs`, and those that descend from them, by version."""
    member, link, row = t.BatchMemberRow, t.CandidateBatchRow, t.CandidateRow
    seen: dict[int, set[str]] = {}
    for part in chunks(sorted(runs)):
        found = connection.execute(
            select(row.version, member.trajectory_id)
            .join(link, link.candidate_id == row.id)
            .join(member, member.batch_id == link.batch_id)
            .where(member.trajectory_id.in_(part))
        )
        for version, key in found:
            seen.setdefault(version, set()).add(key)
    if not seen:
        return []
    heirs, serving = set(seen), dict[int, set[str]]()
    # A parent is always a lower version.
    for version, parent in connection.execute(select(row.version, row.parent).order_by(row.version)):
        if parent in heirs:
            heirs.add(version)
    for span in spans(connection, min(heirs)):
        if span.until is None:
            serving.setdefault(span.version, set()).add(span.engine)
    return [
        Touched(version=one, trajectories=len(seen.get(one, ())), engines=tuple(sorted(serving.get(one, ()))))
        for one in sorted(heirs)
    ]


def tombstone(connection: Connection, now: float, selector: Selector, scope: Scope) -> None:
    """Tombstones for all of `scope`, and for what else of the selector's tenant or key began before `now`: nothing of
    these is written any more, nor delivered to an actor."""
    row = table_of(t.ForgottenRow)
    ids = (*scope.trajectories, *scope.exchanges, *scope.feedback)
    rows: list[dict[str, Any]] = [{"kind": _ID, "name": key, "before": 0.0, "at": now} for key in dict.fromkeys(ids)]
    insert_new(connection, row, rows)
    for kind, name in ((_TENANT, selector.tenant), (_CALLER, selector.caller)):
        if name:
            connection.execute(delete(row).where(row.c.kind == kind, row.c.name == name))
            insert_new(connection, row, [{"kind": kind, "name": name, "before": now, "at": now}])


def parts(scope: Scope) -> Iterator[Scope]:
    """`scope` in parts that one transaction can erase without keeping others from writing for long."""
    yield from (Scope(trajectories=tuple(part), gone=scope.gone) for part in chunks(scope.trajectories, _PAGE))
    yield from (Scope(exchanges=tuple(part)) for part in chunks(scope.exchanges, _PAGE))
    yield from (Scope(feedback=tuple(part)) for part in chunks(scope.feedback, _PAGE))


def erase(connection: Connection, scope: Scope) -> None:
    """Delete the records of `scope`. May be done again."""
    _unjudge(connection, scope)
    for table, ids in (
        (t.TrajectoryRow, scope.trajectories), (t.ExchangeRow, scope.exchanges), (t.FeedbackRow, scope.feedback),
    ):  # fmt: skip
        row = table_of(table)
        for part in chunks(ids):
            connection.execute(delete(row).where(row.c.id.in_(part)))
    outcomes.forget(connection, scope.trajectories)
    link = t.TaskSourceRow
    for part in chunks(scope.trajectories):
        remove_tasks(connection, connection.scalars(select(link.task_id).where(link.source.in_(part))).all())
    # Members stay: they are ids, and tell which versions saw them.


def remove_tasks(connection: Connection, ids: Sequence[str]) -> None:
    """Delete tasks, with what they were made from."""
    for part in chunks(ids):
        connection.execute(delete(t.TaskRow).where(t.TaskRow.id.in_(part)))
        connection.execute(delete(t.TaskSourceRow).where(t.TaskSourceRow.task_id.in_(part)))


def _unjudge(connection: Connection, scope: Scope) -> None:
    """What a judge said quotes runs, and is found by their tenant alone; by nothing where a run is gone already."""
    run, said = t.TrajectoryRow, t.JudgementRow
    for part in chunks(scope.trajectories):
        tenants = connection.scalars(select(run.tenant).where(run.id.in_(part)).distinct()).all()
        connection.execute(delete(said).where(true() if scope.gone else said.tenant.in_(tenants)))


def sweep(connection: Connection) -> None:
    """Take forgotten records out of the outbox and of the parked ones."""
    out, dead = t.OutboxRow, t.DeadLetterRow
    open_ones = connection.execute(select(out.sequence, out.data).where(out.published.is_(False))).all()
    mine = _concerned(connection, {str(row.sequence): row.data for row in open_ones})
    for part in chunks(sorted(int(key) for key in mine)):
        connection.execute(update(out).where(out.sequence.in_(part)).values(published=True, data=b""))
    for part in chunks(connection.scalars(select(dead.id)).all()):
        letters = {key: data for key, data in connection.execute(select(dead.id, dead.data).where(dead.id.in_(part)))}
        connection.execute(delete(dead).where(dead.id.in_(_concerned(connection, letters))))


def _concerned(connection: Connection, bodies: Mapping[str, bytes]) -> set[str]:
    """Keys of those of `bodies` that are forgotten."""
    read: dict[str, Message] = {}
    for key, data in bodies.items():
        try:
            read[key] = decode(data)
        except MessageError:
            continue  # parked because nobody can read it
    gone = refused(connection, list(read.values()))
    return {key for key, message in read.items() if message.id in gone}


def refused(connection: Connection, records: Sequence[Message]) -> set[str]:
    """Ids of those of `records` that are forgotten, or that rest on what is.

    A trajectory rests on its calls, feedback on the call or the trajectory that it names, a lesson in use or on trial
    on its sources, a batch on its members, a task on what it was made from.
    """
    if not records or not _any(connection):
        return set()
    spans = {(row.kind, row.name): row.before for row in connection.execute(_SPANS)}
    gone = {record.id for record in records if spans and _spanned(record, spans)}
    grounds = [(record.id, {record.id, *_grounds(record)}) for record in records]
    gone |= tombstoned(connection, sorted(set[str]().union(*(rests for _, rests in grounds))))
    return {key for key, rests in grounds if rests & gone}


_SPANS = select(t.ForgottenRow.kind, t.ForgottenRow.name, t.ForgottenRow.before).where(t.ForgottenRow.kind != _ID)


def _grounds(record: Message) -> Sequence[str]:
    match record:
        case Attributed():
            return _grounds(record.trajectory)
        case Trajectory():
            return [step.exchange_id for step in record.steps]
        case Experience(state="candidate" | "active"):
            return record.sources
        case BatchOrder():
            return record.trajectories
        case Task():
            return task_sources(record)
        case Feedback():
            return [key for key in (record.trajectory_id, record.exchange_id) if key]
        case _:
            return ()


def task_sources(task: Task) -> Sequence[str]:
    """Ids of what `task` was made from, as its `spec` names them."""
    named = task.spec.get("made_from", ())
    return [one for one in named if isinstance(one, str)] if isinstance(named, list | tuple) else []


def _spanned(record: Message, spans: Mapping[tuple[str, str], float]) -> bool:
    match record:
        case Attributed():
            return _spanned(record.trajectory, spans)
        case Trajectory():
            return record.started < spans.get((_TENANT, record.tenant), 0.0)
        case Exchange():
            before = max(spans.get((_TENANT, record.tenant), 0.0), spans.get((_CALLER, record.caller), 0.0))
            return record.started < before
        case Feedback():
            return record.received < spans.get((_TENANT, record.tenant), 0.0)
        case _:
            return False


def entomb_more(connection: Connection, records: Sequence[Message], now: float) -> None:
    """Tombstones for what was refused of traffic: whatever rests on that is refused too."""
    ids = {record.id for record in records if isinstance(record, Exchange | Feedback | Trajectory | Attributed)}
    insert_new(
        connection, table_of(t.ForgottenRow), [{"kind": _ID, "name": key, "before": 0.0, "at": now} for key in ids]
    )


def tombstoned(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Those of the record ids `ids` that have a tombstone."""
    row, found = t.ForgottenRow, set[str]()
    if not ids or not _any(connection):
        return found
    for part in chunks(ids):
        found.update(connection.scalars(select(row.name).where(row.kind == _ID, row.name.in_(part))))
    return found


def buried_inputs(connection: Connection, inputs: Sequence[str]) -> set[str]:
    """Those of the ids of deliveries (`subject:record`) whose record has a tombstone."""
    by_record: dict[str, list[str]] = {}
    for key in inputs:
        by_record.setdefault(key.partition(":")[2], []).append(key)
    return {key for record in tombstoned(connection, sorted(by_record)) for key in by_record[record]}


def _any(connection: Connection) -> bool:
    # Almost always empty, and asked at every commit.
    return connection.exec_driver_sql("SELECT 1 FROM forgotten LIMIT 1").first() is not None
