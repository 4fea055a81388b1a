"""Judgements by key of their content (`actors.credit.judgement_cache`); and the attributor's other state."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from actors.store.columns import among
from actors.store.engine import insert_new
from actors.store.ledger import put_state
from actors.store.tables import Judgements, State


def judgements(connection: Connection, keys: Sequence[str]) -> dict[str, bytes]:
    """Bodies by key, of those that are kept."""
    found = connection.execute(select(Judgements.id, Judgements.body).where(among(Judgements.id, keys)))
    return {key: body for key, body in found}


def keep(
    connection: Connection, now: float, fresh: Mapping[str, tuple[str, bytes]], states: Mapping[str, bytes]
) -> None:
    """Add judgements, tenant and body by key, and values of state."""
    rows = [{"id": key, "tenant": tenant, "made": now, "body": body} for key, (tenant, body) in fresh.items()]
    insert_new(connection, Judgements, rows)
    for key, value in states.items():
        put_state(connection, key, value)


def states(connection: Connection, prefix: str) -> dict[str, bytes]:
    """Values of state whose keys begin with `prefix`."""
    # Not LIKE, which is blind to case in SQLite and finds nothing by the index in either.
    within = (State.key >= prefix) & (State.key < prefix + "\U0010ffff")
    found = connection.execute(select(State.key, State.value).where(within).order_by(State.key))
    return {key: value for key, value in found}
