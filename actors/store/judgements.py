"""Judgements by the content that they are of, least recently used first to go; and the attributor's other state."""

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import Connection, delete, func, select, update

from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.ledger import put_state


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge said of some content."""

    key: str
    """Of the content; see `actors.credit.content`."""
    tenant: str
    body: bytes


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many are kept, and how long."""

    entries: int
    seconds: float
    """Since one was last used."""


def judgements(connection: Connection, keys: Sequence[str]) -> dict[str, bytes]:
    """Bodies by key, of those that are kept."""
    row = t.JudgementRow
    found: dict[str, bytes] = {}
    for part in chunks(list(dict.fromkeys(keys))):
        for key, body in connection.execute(select(row.key, row.body).where(row.key.in_(part))):
            found[key] = body
    return found


def keep(
    connection: Connection, fresh: Sequence[Judgement], used: Sequence[str], states: Mapping[str, bytes], now: float
) -> None:
    """Add judgements and values of state, and note which judgements were used again."""
    row = t.JudgementRow
    insert_new(
        connection, table_of(row),
        [{"key": one.key, "tenant": one.tenant, "used": now, "body": one.body} for one in fresh],
    )  # fmt: skip
    for part in chunks(list(used)):
        connection.execute(update(row).where(row.key.in_(part)).values(used=now))
    for key, value in states.items():
        put_state(connection, key, value)


def bound(connection: Connection, bounds: Bounds, now: float) -> int:
    """Forget what is beyond `bounds`, the least recently used first; returns how many."""
    row = t.JudgementRow
    gone = connection.execute(delete(row).where(row.used < now - bounds.seconds)).rowcount
    over = (connection.scalar(select(func.count()).select_from(row)) or 0) - bounds.entries
    if over > 0:
        oldest = connection.scalars(select(row.key).order_by(row.used, row.key).limit(over)).all()
        for part in chunks(list(oldest)):
            connection.execute(delete(row).where(row.key.in_(part)))
        gone += over
    return gone


def states(connection: Connection, prefix: str) -> dict[str, bytes]:
    """Values of state whose keys begin with `prefix`."""
    row = t.StateRow
    # Not LIKE, which is blind to case in SQLite and finds nothing by the index in either.
    within = (row.key >= prefix) & (row.key < prefix + "\U0010ffff")
    found = connection.execute(select(row.key, row.value).where(within).order_by(row.key))
    return {key: value for key, value in found}
