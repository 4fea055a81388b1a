"""Erasing by source: what belongs to a trajectory, a tenant or an agent's key, and taking it out for good.

    find -> what would go, and which weights saw it  ->  erase, part by part  ->  tombstones keep it from coming back

A trajectory takes with it its calls, what was said of it, its side calls, and the trajectories that continue its
conversation. Ids stay, in lineage and audit trail. Tombstones live until no stream can deliver a record again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select, true

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
from actors.store.columns import among
from actors.store.engine import chunks, insert_new
from actors.store.runs import bodies
from actors.store.stories import answers, spans
from actors.store.tables import (
    Batches,
    Calls,
    Candidates,
    DeadLetters,
    Forgotten,
    Judgements,
    Outbox,
    Reports,
    Runs,
    Tasks,
    TaskSources,
)
from actors.store.waiting import waiting

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
    runs, calls = set(selector.trajectories), set[str]()
    if selector.tenant:
        runs.update(connection.scalars(select(Runs.id).where(Runs.tenant == selector.tenant)))
        calls.update(connection.scalars(select(Calls.id).where(Calls.tenant == selector.tenant)))
    if selector.caller:
        mine = select(Calls.id, Calls.trajectory_id).where(Calls.caller == selector.caller, Calls.caller != "")
        for key, trajectory_id in connection.execute(mine):
            calls.add(key)
            runs.update({trajectory_id} - {""})
    if selector.caller or selector.trajectories:
        runs |= _kindred(connection, runs)
    calls.update(connection.scalars(select(Calls.id).where(among(Calls.trajectory_id, runs))))
    there = connection.execute(select(Runs.id, Runs.batch_id).where(among(Runs.id, runs))).all()
    orders = select(Batches.body).order_by(Batches.id)
    if len(there) == len(runs):  # else those that are gone are looked for among what each order names
        orders = orders.where(among(Batches.id, {row.batch_id for row in there}))
    held = {one.id: one for one in bodies(connection, orders, BatchOrder) if not runs.isdisjoint(one.trajectories)}
    heard = answers(connection, held)
    seen = defaultdict[int, set[str]](set)
    for answer in heard:
        if answer.answer == "trained":
            orders_of_it = (held[key] for key in answer.batch_ids if key in held)
            seen[answer.version].update(*(runs.intersection(one.trajectories) for one in orders_of_it))
    return Scope(
        trajectories=tuple(sorted(runs)), gone=len(runs) - len(there), exchanges=tuple(sorted(calls)),
        feedback=tuple(sorted(_feedback(connection, selector, runs, calls))), batches=tuple(held),
        unanswered=tuple(key for key in held if not any(key in one.batch_ids for one in heard)),
        files=tuple(order.path for order in held.values()), versions=tuple(_touched(connection, seen)),
    )  # fmt: skip


def _kindred(connection: Connection, runs: set[str]) -> set[str]:
    """`runs`, and what goes on with them, to any depth."""
    known, fresh = set[str](), set(runs)
    while fresh:
        known |= fresh
        goes_on = select(Runs.id).where(among(Runs.continues, fresh), Runs.continues != "")
        fresh = set(connection.scalars(goes_on)) - known
    return known


def _feedback(connection: Connection, selector: Selector, runs: set[str], calls: set[str]) -> set[str]:
    # A run's own id is nobody else's, whatever the tenant.
    theirs = among(Reports.joined, runs) | among(Reports.trajectory_id, runs)
    if selector.tenant:
        theirs |= Reports.tenant == selector.tenant
    found = set(connection.scalars(select(Reports.id).where(theirs)))
    return found.union(waiting(connection, calls))


def _touched(connection: Connection, seen: Mapping[int, set[str]]) -> list[Touched]:
    """The versions `seen`, each with the runs that it was trained on, and those that descend from them, by version."""
    if not seen:
        return []
    heirs = set(seen)
    # A parent is always a lower version.
    lines = select(Candidates.version, Candidates.parent).order_by(Candidates.version)
    heirs.update(version for version, parent in connection.execute(lines) if parent in heirs)
    serving = sorted((span.version, span.engine) for span in spans(connection, min(heirs)) if span.until is None)
    return [
        Touched(
            version=one,
            trajectories=len(seen.get(one, ())),
            engines=tuple(name for at, name in serving if at == one),
        )
        for one in sorted(heirs)
    ]


def tombstone(connection: Connection, now: float, selector: Selector, scope: Scope) -> None:
    """Neither what is in `scope`, nor what else of the selector's tenant or key began before `now`, is written any
    more or delivered to an actor."""
    entomb(connection, (*scope.trajectories, *scope.exchanges, *scope.feedback), now)
    for kind, name in ((_TENANT, selector.tenant), (_CALLER, selector.caller)):
        if name:
            connection.execute(delete(Forgotten).where(Forgotten.kind == kind, Forgotten.name == name))
            insert_new(connection, Forgotten, [{"kind": kind, "name": name, "at": now}])


def entomb(connection: Connection, ids: Iterable[str], now: float) -> None:
    """Tombstones for these records: whatever rests on them is refused."""
    rows = [{"kind": _ID, "name": key, "at": now} for key in dict.fromkeys(ids)]
    insert_new(connection, Forgotten, rows)


def parts(scope: Scope) -> Iterator[Scope]:
    """`scope` in parts that one transaction can erase without keeping others from writing for long."""
    yield from (Scope(trajectories=tuple(part), gone=scope.gone) for part in chunks(scope.trajectories, _PAGE))
    yield from (Scope(exchanges=tuple(part)) for part in chunks(scope.exchanges, _PAGE))
    yield from (Scope(feedback=tuple(part)) for part in chunks(scope.feedback, _PAGE))


def erase(connection: Connection, scope: Scope) -> None:
    """Delete the records of `scope`, a part. May be done again.

    Orders stay: they name runs by id alone, and tell which versions saw them.
    """
    if scope.trajectories:
        # What a judge said quotes runs, and is found by their tenant alone; by nothing where a run is gone already.
        tenants = select(Runs.tenant).where(among(Runs.id, scope.trajectories))
        connection.execute(delete(Judgements).where(true() if scope.gone else Judgements.tenant.in_(tenants)))
    for table, ids in ((Runs, scope.trajectories), (Calls, scope.exchanges), (Reports, scope.feedback)):
        connection.execute(delete(table).where(among(table.id, ids)))
    outcomes.forget(connection, scope.trajectories)
    made_from = select(TaskSources.task_id).where(among(TaskSources.source, scope.trajectories))
    remove_tasks(connection, connection.scalars(made_from).all())


def remove_tasks(connection: Connection, ids: Sequence[str]) -> None:
    """Delete tasks, with what they were made from."""
    connection.execute(delete(Tasks).where(among(Tasks.id, ids)))
    connection.execute(delete(TaskSources).where(among(TaskSources.task_id, ids)))


def sweep(connection: Connection) -> None:
    """Take forgotten records out of the outbox and of the parked ones."""
    copies: tuple[tuple[Any, Any], ...] = ((Outbox, Outbox.sequence), (DeadLetters, DeadLetters.id))
    for table, key in copies:
        for part in chunks(connection.scalars(select(key).where(table.data != b"")).all(), _PAGE):
            read: dict[Any, Message] = {}
            for place, data in connection.execute(select(key, table.data).where(key.in_(part))):
                with suppress(MessageError):  # parked because nobody can read it
                    read[place] = decode(data)
            gone = refused(connection, list(read.values()))
            places = [place for place, message in read.items() if message.id in gone]
            connection.execute(delete(table).where(key.in_(places)))


def refused(connection: Connection, records: Sequence[Message]) -> set[str]:
    """Ids of those of `records` that are forgotten, or that rest on what is (`_grounds`)."""
    if not records or connection.scalar(select(Forgotten.name).limit(1)) is None:
        return set()  # almost always
    plain = [record.trajectory if isinstance(record, Attributed) else record for record in records]
    wanted = select(Forgotten.kind, Forgotten.name, Forgotten.at).where(Forgotten.kind != _ID)
    spans = {(kind, name): at for kind, name, at in connection.execute(wanted)}
    gone = {record.id for record in plain if spans and _spanned(record, spans)}
    grounds = [(record.id, {record.id, *_grounds(record)}) for record in plain]
    gone |= tombstoned(connection, set[str]().union(*(rests for _, rests in grounds)))
    return {key for key, rests in grounds if rests & gone}


def _grounds(record: Message) -> Sequence[str]:
    match record:
        case Trajectory():
            return [step.exchange_id for step in record.steps]
        case Experience(state="candidate" | "active"):
            return record.sources
        case BatchOrder():
            return record.trajectories
        case Feedback():
            return [key for key in (record.trajectory_id, record.exchange_id) if key]
        case _:
            return ()


def task_sources(task: Task) -> Sequence[str]:
    """Ids of what `task` was made from, as its `spec` names them."""
    named = task.spec.get("made_from", ())
    return [one for one in named if isinstance(one, str)] if isinstance(named, list | tuple) else []


def _spanned(record: Message, spans: Mapping[tuple[str, str], float]) -> bool:
    if not isinstance(record, Trajectory | Exchange | Feedback):
        return False
    began = record.received if isinstance(record, Feedback) else record.started
    caller = record.caller if isinstance(record, Exchange) else ""
    return began < max(spans.get((_TENANT, record.tenant), 0.0), spans.get((_CALLER, caller), 0.0))


def tombstoned(connection: Connection, ids: Collection[str]) -> set[str]:
    """Those of the record ids `ids` that have a tombstone."""
    return set(connection.scalars(select(Forgotten.name).where(Forgotten.kind == _ID, among(Forgotten.name, ids))))


def buried_inputs(connection: Connection, inputs: Sequence[str]) -> set[str]:
    """Those of the ids of deliveries (`subject:record`) whose record has a tombstone."""
    gone = tombstoned(connection, {key.partition(":")[2] for key in inputs})
    return {key for key in inputs if key.partition(":")[2] in gone}
