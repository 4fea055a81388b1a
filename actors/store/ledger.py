"""The ledger's statements: marks, outbox and dead letters, each a function of an open transaction."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select, update

from actors.messages import Message, derived_id
from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.erasing import buried_inputs, entomb_more, refused
from actors.store.saving import Saved, save
from actors.system.outgoing import Outgoing, outgoing
from actors.system.streams import TRAJECTORY_OUTCOME


def processed(connection: Connection, actor: str, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that `actor` is done with, or that were forgotten."""
    row, found = t.ProcessedRow, buried_inputs(connection, ids)
    for part in chunks(list(ids)):
        found.update(connection.scalars(select(row.input_id).where(row.actor == actor, row.input_id.in_(part))))
    return found


def commit(
    connection: Connection,
    actor: str,
    inputs: Sequence[str],
    records: Sequence[Message],
    outputs: Sequence[Outgoing],
    now: float,
) -> Saved | None:
    """Marks, records and outputs in one; None, and nothing written, if an input was done before.

    What rests on something forgotten is neither written nor sent: an actor may have had it in hand.
    """
    if processed(connection, actor, inputs):
        return None
    gone = refused(connection, records)
    if gone:
        entomb_more(connection, [record for record in records if record.id in gone], now)
        records = [record for record in records if record.id not in gone]
    marks = [{"actor": actor, "input_id": key, "at": now} for key in dict.fromkeys(inputs)]
    insert_new(connection, table_of(t.ProcessedRow), marks)
    saved = save(connection, records, now)
    saved.refused = len(gone)
    saved.outputs = [
        *(output for output in outputs if not gone or not _of_record(output) & gone),
        *(outgoing(TRAJECTORY_OUTCOME, changed) for changed in saved.changed),
    ]
    rows = [
        {"actor": actor, "output_id": o.id, "subject": o.subject, "data": o.data, "published": False, "at": now}
        for o in saved.outputs
    ]
    insert_new(connection, table_of(t.OutboxRow), rows)
    return saved


def _of_record(item: Outgoing) -> set[str]:
    """What may be the id of the record in `item`: its own id is `subject:record` or `subject:record:revision`."""
    record = item.id.removeprefix(f"{item.subject}:")
    return {record, record.rpartition(":")[0]}


def unpublished(connection: Connection, actor: str, limit: int) -> list[Outgoing]:
    """The oldest outputs that the bus does not have yet."""
    row = t.OutboxRow
    wanted = (
        select(row.subject, row.output_id, row.data)
        .where(row.published.is_(False), row.actor == actor)
        .order_by(row.sequence)
        .limit(limit)
    )
    return [Outgoing(found.subject, found.output_id, found.data) for found in connection.execute(wanted)]


def published(connection: Connection, actor: str, ids: Sequence[str]) -> None:
    """The bus has these: keep the ids, let the bytes go."""
    row = t.OutboxRow
    for part in chunks(list(ids)):
        connection.execute(
            update(row).where(row.actor == actor, row.output_id.in_(part)).values(published=True, data=b"")
        )


def park(connection: Connection, now: float, actor: str, input_id: str, subject: str, data: bytes, error: str) -> bool:
    """Keep a dead letter and mark its input done; False if it was before."""
    if processed(connection, actor, [input_id]):
        return False
    insert_new(connection, table_of(t.ProcessedRow), [{"actor": actor, "input_id": input_id, "at": now}])
    letter = {
        "id": derived_id("dead", actor, input_id), "actor": actor, "input_id": input_id, "subject": subject,
        "data": data, "error": error, "at": now,
    }  # fmt: skip
    insert_new(connection, table_of(t.DeadLetterRow), [letter])
    return True


def revive(connection: Connection, now: float, dead_id: str) -> Outgoing | None:
    """Take a parked record's mark away, so that it will be handled; returns what to publish, None if unknown.

    Publish it, then call `delete_dead_letter`: until then it stays in the list and may be revived again. It has an id
    of its own, or the broker would take it for a duplicate.
    """
    row = t.DeadLetterRow
    wanted = select(row.actor, row.input_id, row.subject, row.data).where(row.id == dead_id)
    found = connection.execute(wanted).first()
    if found is None:
        return None
    mark = t.ProcessedRow
    connection.execute(delete(mark).where(mark.actor == found.actor, mark.input_id == found.input_id))
    return Outgoing(found.subject, f"{found.input_id}:revived:{now}", found.data)


def delete_dead_letter(connection: Connection, dead_id: str) -> None:
    """Forget a parked record."""
    connection.execute(delete(t.DeadLetterRow).where(t.DeadLetterRow.id == dead_id))


def prune(connection: Connection, before: float) -> int:
    """Forget marks, sent outputs and calls that nobody could read from before `before` (unix seconds), which is further
    back than what a stream can still deliver; how many. Letters that are still parked keep theirs."""
    parked = select(t.DeadLetterRow.input_id)
    wheres = (
        (t.ProcessedRow, (t.ProcessedRow.at < before, t.ProcessedRow.input_id.not_in(parked))),
        (t.OutboxRow, (t.OutboxRow.at < before, t.OutboxRow.published)),
        (t.DeadLetterRow, (t.DeadLetterRow.at < before, t.DeadLetterRow.subject == "")),
        (t.ForgottenRow, (t.ForgottenRow.at < before,)),
    )
    return sum(connection.execute(delete(row).where(*where)).rowcount for row, where in wheres)


def get_state(connection: Connection, key: str) -> bytes | None:
    """A value; None if it was never set."""
    return connection.scalar(select(t.StateRow.value).where(t.StateRow.key == key))


def put_state(connection: Connection, key: str, value: bytes) -> None:
    """Set a value."""
    insert_new(connection, table_of(t.StateRow), [{"key": key, "value": value}])
    connection.execute(update(t.StateRow).where(t.StateRow.key == key).values(value=value))
