"""Judgements by the content that they are of; and the attributor's other state."""

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import Connection, select

from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.ledger import put_state


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What a judge said of some content."""

    key: str
    """Of the content; see `actors.credit.judgement_cache`."""
    tenant: str
    body: bytes


def judgements(connection: Connection, keys: Sequence[str]) -> dict[str, bytes]:
    """Bodies by key, of those that are kept."""
    row = t.JudgementRow
    found: dict[str, bytes] = {}
    for part in chunks(list(dict.fromkeys(keys))):
        for key, body in connection.execute(select(row.id, row.body).where(row.id.in_(part))):
            found[key] = body
    return found


def keep(connection: Connection, now: float, fresh: Sequence[Judgement], states: Mapping[str, bytes]) -> None:
    """Add judgements, and values of state."""
    insert_new(
        connection, table_of(t.JudgementRow),
        [{"id": one.key, "tenant": one.tenant, "made": now, "body": one.body} for one in fresh],
    )  # fmt: skip
    for key, value in states.items():
        put_state(connection, key, value)


def states(connection: Connection, prefix: str) -> dict[str, bytes]:
    """Values of state whose keys begin with `prefix`."""
    row = t.StateRow
    # Not LIKE, which is blind to case in SQLite and finds nothing by the index in either.
    within = (row.key >= prefix) & (row.key < prefix + "\U0010ffff")
    found = connection.execute(select(row.key, row.value).where(within).order_by(row.key))
    return {key: value for key, value in found}
