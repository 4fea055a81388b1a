"""Messages into rows: `save` dispatches by type. A record that is there already changes nothing."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, select, update

from actors.messages import (
    Attributed,
    BatchOrder,
    Candidate,
    Directive,
    Exchange,
    Experience,
    Feedback,
    Message,
    OutcomeChanged,
    Serving,
    Task,
    Trajectory,
    Verdict,
    decode,
    encode,
)
from actors.messages.dialects import dialect_at
from actors.store import agents, audit, outcomes, tasks
from actors.store import tables as t
from actors.store.columns import lookup
from actors.store.engine import chunks, insert_new, table_of
from actors.store.errors import UnknownRecord
from actors.store.records import Dropped, Guessed, Joined, Used
from actors.store.waiting import claimed, named, settled
from actors.system.outgoing import Outgoing

T = TypeVar("T")


def stitchable(exchange: Exchange) -> bool:
    """Whether the call can be a step: one of a conversation, and the engine answered it, or a mirror saw it alone.

    The others (embeddings, unknown paths) are kept and counted.
    """
    answered = 0 < exchange.status < 400 or (exchange.status == 0 and exchange.source != "tap")
    return answered and dialect_at(exchange.endpoint) is not None


class Saved(msgspec.Struct):
    """What a transaction left out, and what it added to the audit trail."""

    refused: int = 0
    """Records that rest on something forgotten."""
    did: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Reports of how runs went, by what they did (`outcomes.Did`)."""
    changed: Sequence[OutcomeChanged] = ()
    """Of closed runs of production; to be published."""
    outputs: Sequence[Outgoing] = ()
    """What to publish of a commit."""
    head: audit.Head | None = None
    """Of the audit trail; None if nothing that is audited was new."""


def save(connection: Connection, records: Iterable[Message], now: float) -> Saved:
    """Write `records`, in the order that their kinds need (what is updated after what is inserted).

    Raises:
        UnknownRecord: a type without a table; nothing should be committed then.
    """
    records = list(records)
    by_type: dict[type[Message], list[Message]] = {}
    for record in records:
        by_type.setdefault(type(record), []).append(record)
    if unknown := by_type.keys() - {*_SIMPLE, *_OTHERS}:
        raise UnknownRecord(", ".join(sorted(kind.__name__ for kind in unknown)))
    saved, audited = Saved(), audit.unlisted(connection, records)
    for kind, rows in by_type.items():
        if kind in _SIMPLE:
            insert(connection, kind, rows)
    _feedback(connection, _only(by_type, Feedback))
    _exchanges(connection, _only(by_type, Exchange))
    fresh = _trajectories(connection, [*_only(by_type, Trajectory), *_only(by_type, Attributed)])
    run = t.TrajectoryRow
    for guess in _only(by_type, Guessed):
        connection.execute(update(run).where(run.id == guess.id).values(guessed=guess.outcome))
    _batches(connection, _only(by_type, BatchOrder))
    tasks.add(connection, _only(by_type, Task), now)
    _candidates(connection, _only(by_type, Candidate))
    own = _only(by_type, Joined)
    heard = {joined.id for joined in own}
    joins = [*own, *claimed(connection, _only(by_type, Trajectory), heard)]
    saved.did, saved.changed = _join(connection, joins, fresh)
    outcomes.use(connection, _only(by_type, Used))
    drops = _only(by_type, Dropped)
    for dropped in drops:
        connection.execute(
            update(run)
            .where(run.id == dropped.id, run.dropped == "", run.batch_id == "")
            .values(dropped=dropped.reason)
        )
    outcomes.give_up(connection, [dropped.id for dropped in drops if dropped.reason == outcomes.GIVEN_UP])
    saved.head = audit.append(connection, audited, now)
    return saved


def _only(by_type: dict[type[Message], list[Message]], kind: type[T]) -> list[T]:
    return [record for record in by_type.get(kind, []) if isinstance(record, kind)]  # type: ignore[call-overload]


_SIMPLE: dict[type[Message], tuple[type[t.Base], tuple[str, ...]]] = {
    Experience: (t.ExperienceRow, ("id", "revision", "tenant", "state", "updated")),
    BatchOrder: (t.BatchRow, ("id", "created")),
    Candidate: (t.CandidateRow, ("id", "version", "parent", "created")),
    Verdict: (t.VerdictRow, ("id", "version", "decision", "created")),
    Serving: (t.ServingRow, ("id", "engine", "version", "result", "since")),
    Directive: (t.DirectiveRow, ("id", "kind", "created")),
}
"""Kinds whose rows are inserted once and never touched again: the table, and the fields that are its columns."""
_OTHERS = (Exchange, Feedback, Trajectory, Attributed, Task, Joined, Dropped, Guessed, Used)


def insert(connection: Connection, kind: type[Message], records: Sequence[Message]) -> None:
    """Write records of a simple kind; what is there already stays."""
    row, names = _SIMPLE[kind]
    rows = [{**{name: getattr(one, name) for name in names}, "body": encode(one)} for one in records]
    insert_new(connection, table_of(row), rows)


def _feedback(connection: Connection, reports: list[Feedback]) -> None:
    rows = [
        {"id": said.id, "tenant": said.tenant, "received": said.received, "joined": "", **named(said),
         "body": encode(said)}
        for said in reports
    ]  # fmt: skip
    insert_new(connection, table_of(t.FeedbackRow), rows)


def _exchanges(connection: Connection, calls: list[Exchange]) -> None:
    rows = [
        {
            "id": call.id, "tenant": call.tenant, "response_id": lookup(call.response_id), "caller": call.caller,
            "explicit": lookup(call.hints.trajectory_id or call.hints.conversation),
            "custom_id": lookup(call.hints.custom_id), "trajectory_id": "", "started": call.started,
            "status": call.status, "stitched": stitchable(call), "body": encode(call),
        }
        for call in calls
    ]  # fmt: skip
    insert_new(connection, table_of(t.ExchangeRow), rows)


def revise(
    connection: Connection, now: float, experience_id: str, change: Callable[[Experience], Experience]
) -> Experience | None:
    """Write the next revision of a lesson, made of the latest by `change`, whoever else revises; None if there is no
    such lesson. What `change` raises is raised, and nothing is written."""
    row = t.ExperienceRow
    wanted = select(row.body).where(row.id == experience_id).order_by(row.revision.desc()).limit(1)
    body = connection.scalar(wanted)
    latest = None if body is None else decode(body)
    if not isinstance(latest, Experience):
        return None
    revised = msgspec.structs.replace(change(latest), revision=latest.revision + 1, updated=now)
    save(connection, [revised], now)
    return revised


def add_experiences(connection: Connection, now: float, lessons: Sequence[Experience]) -> set[str]:
    """Write those that no lesson has the id of yet, all or none; ids of the others."""
    row, there = t.ExperienceRow, set[str]()
    for part in chunks(sorted({lesson.id for lesson in lessons})):
        there.update(connection.scalars(select(row.id).where(row.id.in_(part))))
    save(connection, [lesson for lesson in lessons if lesson.id not in there], now)
    return there


def _trajectories(connection: Connection, records: list[Trajectory | Attributed]) -> set[str]:
    """Insert the new ones with what they claim, and give the known ones their labels; ids of the new ones.

    In four statements however many they are: built one by one, statements cost more than all that they do.
    """
    if not records:
        return set()
    row = table_of(t.TrajectoryRow)
    known: dict[str, tuple[bool, float | None, int]] = {}
    for part in chunks(sorted({record.id for record in records})):
        for key, attributed, outcome, revision in connection.execute(
            select(row.c.id, row.c.attributed, row.c.outcome, row.c.revision).where(row.c.id.in_(part))
        ):
            known[key] = (attributed, outcome, revision)
    fresh: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for record in records:
        run = record.trajectory if isinstance(record, Attributed) else record
        found = known.get(record.id)
        if found is None:
            fresh.append(_trajectory_row(record, run))
            if run.source == "production":
                claims += [{"call": step.exchange_id, "run": run.id} for step in run.steps]
            known[record.id] = (isinstance(record, Attributed), run.outcome, run.outcome_revision)
        elif isinstance(record, Attributed) and not found[0]:
            if found[1] is not None and (run.outcome is None or found[2] > run.outcome_revision):
                # Feedback came between closing and attribution: the row keeps what it knows.
                late = outcomes.revised(run, found[1], found[2])
                record = msgspec.structs.replace(record, trajectory=late)
            labels.append({"which": record.id, "kind": record.cluster, "content": encode(record)})
            known[record.id] = (True, *found[1:])
    insert_new(connection, row, fresh)
    calls = table_of(t.ExchangeRow)
    if claims:
        # By key alone: asked for open ones too, SQLite walks the index of all that are open instead.
        connection.execute(
            update(calls).where(calls.c.id == bindparam("call")).values(trajectory_id=bindparam("run")), claims
        )
    if labels:
        connection.execute(
            update(row)
            .where(row.c.id == bindparam("which"))
            .values(attributed=True, cluster=bindparam("kind"), body=bindparam("content")),
            labels,
        )
    return {line["id"] for line in fresh}


_RUN = (
    "id", "source", "tenant", "caller", "goal", "outcome", "min_version", "max_version", "started", "ended",
    "closed_by", "trainable", "why_not", "side_of", "continues",
)  # fmt: skip
"""Fields of a trajectory that are its columns."""


def _trajectory_row(record: Trajectory | Attributed, run: Trajectory) -> dict[str, Any]:
    return {
        **{name: getattr(run, name) for name in _RUN}, "revision": run.outcome_revision, "told": None, "guessed": None,
        "attributed": isinstance(record, Attributed),
        "cluster": record.cluster if isinstance(record, Attributed) else "", "batch_id": "", "dropped": "",
        **agents.columns(run), "body": encode(record),
    }  # fmt: skip


def _join(
    connection: Connection, joins: Sequence[Joined], fresh: Collection[str]
) -> tuple[Counter[str], list[OutcomeChanged]]:
    """Note whose feedback is, and take over what it says of outcomes."""
    if not joins:
        return Counter(), []
    feedback = table_of(t.FeedbackRow)
    connection.execute(
        update(feedback).where(feedback.c.id == bindparam("said")).values(joined=bindparam("where"), **settled()),
        [{"said": one.id, "where": one.trajectory_id} for one in joins],
    )
    return outcomes.hear(connection, joins, fresh)


def _batches(connection: Connection, orders: list[BatchOrder]) -> None:
    for order in orders:
        members = [{"batch_id": order.id, "trajectory_id": member} for member in order.trajectories]
        insert_new(connection, table_of(t.BatchMemberRow), members)
        for part in chunks(order.trajectories):
            connection.execute(
                update(t.TrajectoryRow)
                .where(t.TrajectoryRow.id.in_(part), t.TrajectoryRow.batch_id == "")
                .values(batch_id=order.id)
            )


def drop_unused(connection: Connection, room: int, reason: str, *, reported: bool = True) -> int:
    """Mark as dropped what is attributed, neither used nor dropped, and older than the newest `room` of its like; how
    many that are. Of those that ended at the same moment as the last that has room, all are left.

    Args:
        reported: of those with an outcome; else of those without.
    """
    row = t.TrajectoryRow
    told = row.outcome.is_not(None) if reported else row.outcome.is_(None)
    unused = (row.attributed, row.batch_id == "", row.dropped == "", told)
    newest = select(row.ended).where(*unused).order_by(row.ended.desc()).limit(1)
    last = connection.scalar(newest.offset(max(0, room - 1)))
    if last is None:
        return 0
    return connection.execute(update(row).where(*unused, row.ended < last).values(dropped=reason)).rowcount


def _candidates(connection: Connection, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        links = [{"candidate_id": candidate.id, "batch_id": batch} for batch in candidate.batch_ids]
        insert_new(connection, table_of(t.CandidateBatchRow), links)
        outcomes.answered(connection, candidate)
