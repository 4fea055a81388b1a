"""Which engine served which version from when to when."""

import msgspec
from sqlalchemy import Connection, func, select

from actors.store import tables as t

LOADED = ("started", "swapped")
"""After a swap that was refused or rolled back the engine serves on what it served before."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` served `version` from `since` to `until` (unix seconds; None: it still does)."""

    engine: str
    version: int
    since: float
    until: float | None


def first_served(connection: Connection) -> int | None:
    """The version that was served before any other; None before one was."""
    row = t.ServingRow
    return connection.scalar(select(row.version).where(row.result.in_(LOADED)).order_by(row.since, row.id).limit(1))


def spans(connection: Connection, low: int = 0, high: int | None = None) -> list[Span]:
    """Of versions from `low` to `high` (None: to the newest), the earliest first."""
    row = t.ServingRow
    following = func.lead(row.since).over(partition_by=row.engine, order_by=(row.since, row.id)).label("until")
    event = select(row.id, row.engine, row.version, row.since, following).where(row.result.in_(LOADED)).subquery()
    wanted = select(event.c.engine, event.c.version, event.c.since, event.c.until).where(event.c.version >= low)
    if high is not None:
        wanted = wanted.where(event.c.version <= high)
    found = connection.execute(wanted.order_by(event.c.since, event.c.id))
    return [Span(engine=one.engine, version=one.version, since=one.since, until=one.until) for one in found]
