"""Messages into rows: `save` dispatches by type. A record that is there already changes nothing."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, bindparam, select, true, update

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
    Trajectory,
    Verdict,
    encode,
)
from actors.messages.dialects import dialect_at
from actors.store import agents, audit, outcomes
from actors.store import tables as t
from actors.store.columns import among, lookup
from actors.store.engine import insert_new
from actors.store.records import Beside, Dropped, Guessed, Joined, Used
from actors.store.tables import Calls, Reports, Runs
from actors.store.waiting import NAMES, claimed, named
from actors.system.outgoing import Outgoing

T = TypeVar("T")
_SIMPLE: dict[type[Message], type[t.Base]] = {
    Experience: t.Lessons, BatchOrder: t.Batches, Candidate: t.Candidates, Verdict: t.Verdicts, Serving: t.Servings,
    Directive: t.Directives,
}  # fmt: skip
"""Kinds whose rows are inserted once and never touched again."""
_OTHERS = (Exchange, Feedback, Trajectory, Attributed, Beside, Joined, Dropped, Guessed, Used)


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
    """Write `records`, in the order that their kinds need (what is updated after what is inserted); `TypeError`
    for a type without a table."""
    records = list(records)
    of: defaultdict[type[Message], list[Any]] = defaultdict(list)
    for record in records:
        of[type(record)].append(record)
    if unknown := of.keys() - {*_SIMPLE, *_OTHERS}:
        raise TypeError(f"the store has no table for {', '.join(sorted(kind.__name__ for kind in unknown))}")
    saved = Saved()
    for kind, table in _SIMPLE.items():
        insert(connection, table, of[kind])
    insert(connection, Reports, of[Feedback], lambda said: {"joined": "", "effect": "", **named(said)})
    insert(connection, Calls, of[Exchange], _of_call)
    fresh = _trajectories(connection, [*of[Trajectory], *of[Attributed]])
    _claim(connection, ((one.id, one.trajectory_id) for one in of[Beside]), beside=True)
    for guess in of[Guessed]:
        connection.execute(update(Runs).where(Runs.id == guess.id).values(guessed=guess.outcome))
    for order in of[BatchOrder]:
        unused = among(Runs.id, order.trajectories), Runs.batch_id == ""
        connection.execute(update(Runs).where(*unused).values(batch_id=order.id))
    for candidate in of[Candidate]:
        links = [{"candidate_id": candidate.id, "batch_id": batch} for batch in candidate.batch_ids]
        insert_new(connection, t.CandidateBatches, links)
        outcomes.answered(connection, candidate)
    joins: list[Joined] = of[Joined]
    joins += claimed(connection, of[Trajectory], [one.id for one in of[Beside]], {joined.id for joined in joins})
    if joins:
        found = {"joined": bindparam("where"), **dict.fromkeys(NAMES)}
        where = [{"said": one.id, "where": one.trajectory_id} for one in joins]
        connection.execute(update(Reports).where(Reports.id == bindparam("said")).values(found), where)
        saved.did, saved.changed = outcomes.hear(connection, joins, fresh)
    taken = [{"trajectory_id": one.id, "actor": one.actor, "revision": one.revision} for one in of[Used]]
    insert_new(connection, t.Uses, taken)
    for dropped in of[Dropped]:
        given_up = dropped.reason == outcomes.GIVEN_UP  # its order is; what it answered before stands
        unused = Runs.id == dropped.id, Runs.came == "", true() if given_up else Runs.batch_id == ""
        connection.execute(update(Runs).where(*unused).values(came=dropped.reason))
    saved.head = audit.append(connection, records, now)
    return saved


def insert(
    connection: Connection, table: type[t.Base], records: Sequence[T], more: Callable[[T], dict[str, Any]] | None = None
) -> None:
    """Write records: their bodies, the fields that `table` has columns for, and `more`."""
    insert_new(connection, table, [{**_columns(table, one), **(more(one) if more else {})} for one in records])


def _columns(table: type[t.Base], record: Any, body: Any = None) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in _shared(table, type(record))}
    return {**fields, "body": encode(record if body is None else body)}


@cache
def _shared(table: type[t.Base], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(column.key for column in table.__table__.columns if column.key in kind.__struct_fields__)


def _of_call(call: Exchange) -> dict[str, Any]:
    return {
        "response_id": lookup(call.response_id), "custom_id": lookup(call.hints.custom_id), "trajectory_id": "",
        "beside": False,
        "explicit": lookup(call.hints.trajectory_id or call.hints.conversation), "stitched": stitchable(call),
    }  # fmt: skip


def _trajectories(connection: Connection, records: list[Trajectory | Attributed]) -> set[str]:
    """Insert the new ones with what they claim, and give the known ones their labels; ids of the new ones."""
    if not records:
        return set()
    ids = among(Runs.id, {record.id for record in records})
    fresh = {record.id: record for record in reversed(records)}
    for known in connection.scalars(select(Runs.id).where(ids)):
        del fresh[known]
    runs = {key: one.trajectory if isinstance(one, Attributed) else one for key, one in fresh.items()}
    insert_new(connection, Runs, [_run(record, runs[key]) for key, record in fresh.items()])
    production = (run for run in runs.values() if run.source == "production")
    _claim(connection, ((step.exchange_id, run.id) for run in production for step in run.steps))
    bare = select(Runs.id, Runs.outcome, Runs.revision).where(ids, ~Runs.attributed)
    known = {key: (outcome, revision) for key, outcome, revision in connection.execute(bare)}
    labels: list[dict[str, Any]] = []
    for record in records:
        if isinstance(record, Attributed) and record.id in known:
            # Feedback may have come between closing and attribution: the row keeps what it knows.
            body = encode(outcomes.revised(record, *known.pop(record.id)))
            labels.append({"which": record.id, "kind": record.cluster, "content": body})
    if labels:
        values = {"attributed": True, "cluster": bindparam("kind"), "body": bindparam("content")}
        connection.execute(update(Runs).where(Runs.id == bindparam("which")).values(values), labels)
    return set(fresh)


def _claim(connection: Connection, calls: Iterable[tuple[str, str]], *, beside: bool = False) -> None:
    """(call, its trajectory)"""
    if claims := [{"call": call, "run": run} for call, run in calls]:
        # By key alone: asked for open ones too, SQLite walks the index of all that are open instead.
        claim = update(Calls).where(Calls.id == bindparam("call"))
        connection.execute(claim.values(trajectory_id=bindparam("run"), beside=beside), claims)


def _run(record: Trajectory | Attributed, run: Trajectory) -> dict[str, Any]:
    attributed = isinstance(record, Attributed)
    return {
        **_columns(Runs, run, record), "revision": run.outcome_revision, "told": None, "guessed": None,
        "attributed": attributed, "cluster": record.cluster if attributed else "", "batch_id": "",
        **agents.columns(run),
    }  # fmt: skip
