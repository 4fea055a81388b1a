"""The ledger's statements: marks, outbox and dead letters, each a function of an open transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from actors.messages import Attributed, Exchange, Feedback, Message, Trajectory, derived_id
from actors.store.columns import among
from actors.store.engine import insert_new
from actors.store.erasing import buried_inputs, entomb, refused
from actors.store.saving import Saved, save
from actors.store.tables import DeadLetters, Forgotten, Outbox, Processed, State
from actors.system.outgoing import Outgoing, outgoing
from actors.system.streams import TRAJECTORY_OUTCOME


def processed(connection: Connection, actor: str, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that `actor` is done with, or that were forgotten."""
    done = select(Processed.input_id).where(Processed.actor == actor, among(Processed.input_id, ids))
    return buried_inputs(connection, ids) | set(connection.scalars(done))


def commit(
    connection: Connection, actor: str, inputs: Sequence[str], records: Sequence[Message],
    outputs: Sequence[Outgoing], now: float,
) -> Saved | None:  # fmt: skip
    """Marks, records and outputs in one; None, and nothing written, if an input was done before.

    What rests on something forgotten is neither written nor sent: an actor may have had it in hand.
    """
    if processed(connection, actor, inputs):
        return None
    gone = refused(connection, records)
    if gone:
        # What rests on refused traffic is refused too.
        traffic = Exchange | Feedback | Trajectory | Attributed
        entomb(connection, (one.id for one in records if one.id in gone and isinstance(one, traffic)), now)
        records = [record for record in records if record.id not in gone]
    insert_new(connection, Processed, [{"actor": actor, "input_id": key, "at": now} for key in dict.fromkeys(inputs)])
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
    insert_new(connection, Outbox, rows)
    return saved


def _of_record(item: Outgoing) -> set[str]:
    """What may be the id of the record in `item`: its own id is `subject:record` or `subject:record:revision`."""
    record = item.id.removeprefix(f"{item.subject}:")
    return {record, record.rpartition(":")[0]}


def unpublished(connection: Connection, actor: str, limit: int) -> list[Outgoing]:
    """The oldest outputs that the bus does not have yet."""
    wanted = select(Outbox.subject, Outbox.output_id, Outbox.data).where(~Outbox.published, Outbox.actor == actor)
    return [Outgoing(*found) for found in connection.execute(wanted.order_by(Outbox.sequence).limit(limit))]


def published(connection: Connection, actor: str, ids: Sequence[str]) -> None:
    """The bus has these: keep the ids, let the bytes go."""
    sent = update(Outbox).where(Outbox.actor == actor, among(Outbox.output_id, ids))
    connection.execute(sent.values(published=True, data=b""))


def dead_letters(connection: Connection, limit: int = 100) -> list[dict[str, Any]]:
    """Parked records, newest first, with the `size` of their data, in bytes, in its place."""
    letter, size = DeadLetters, func.length(DeadLetters.data).label("size")
    columns = select(letter.id, letter.actor, letter.input_id, letter.subject, size, letter.error, letter.at)
    found = connection.execute(columns.order_by(letter.at.desc(), letter.id).limit(limit))
    return [one._asdict() for one in found]


def park(connection: Connection, now: float, actor: str, input_id: str, subject: str, data: bytes, error: str) -> bool:
    """Keep a dead letter and mark its input done; False if it was before."""
    if processed(connection, actor, [input_id]):
        return False
    insert_new(connection, Processed, [{"actor": actor, "input_id": input_id, "at": now}])
    letter = {
        "id": derived_id("dead", actor, input_id), "actor": actor, "input_id": input_id, "subject": subject,
        "data": data, "error": error, "at": now,
    }  # fmt: skip
    insert_new(connection, DeadLetters, [letter])
    return True


def revive(connection: Connection, now: float, dead_id: str) -> Outgoing | None:
    """Take a parked record's mark away, so that it will be handled; what to publish, None if unknown.

    It has an id of its own, or the broker would take it for a duplicate. Publish it, then call `delete_dead_letter`.
    """
    columns = select(DeadLetters.actor, DeadLetters.input_id, DeadLetters.subject, DeadLetters.data)
    found = connection.execute(columns.where(DeadLetters.id == dead_id)).first()
    if found is None:
        return None
    connection.execute(delete(Processed).where(Processed.actor == found.actor, Processed.input_id == found.input_id))
    return Outgoing(found.subject, f"{found.input_id}:revived:{now}", found.data)


def delete_dead_letter(connection: Connection, dead_id: str) -> None:
    """Forget a parked record."""
    connection.execute(delete(DeadLetters).where(DeadLetters.id == dead_id))


def prune(connection: Connection, before: float) -> int:
    """Forget marks, sent outputs and letters without a subject from before `before` (unix seconds), which no stream can
    deliver any more; how many. Letters that are still parked keep their marks."""
    parked = select(DeadLetters.input_id)
    wheres = (
        (Processed, (Processed.at < before, Processed.input_id.not_in(parked))),
        (Outbox, (Outbox.at < before, Outbox.published)),
        (DeadLetters, (DeadLetters.at < before, DeadLetters.subject == "")),
        (Forgotten, (Forgotten.at < before,)),
    )
    return sum(connection.execute(delete(row).where(*where)).rowcount for row, where in wheres)


def get_state(connection: Connection, key: str) -> bytes | None:
    """A value; None if it was never set."""
    return connection.scalar(select(State.value).where(State.key == key))


def put_state(connection: Connection, key: str, value: bytes) -> None:
    """Set a value."""
    insert_new(connection, State, [{"key": key, "value": value}])
    connection.execute(update(State).where(State.key == key).values(value=value))
