"""Schema migrations: a database of any older evolved is brought up to date when it is opened (Alembic).

    Store.open -> `migrate` -> number of the database (alembic_version) -> versions/v0001 ... -> our number

All that is missing runs in the caller's transaction, together with the note of the new number: a process that is killed
on the way leaves the database as it was, and the next start begins again. Of several that open it at once one migrates
and the others wait: for the lock that every writer takes first (SQLite's own, on PostgreSQL an advisory one). An empty
database gets the tables as they are now, without Alembic, whose import alone takes longer; that both ways lead to the
same is tested.

A migration says itself what it makes, in its own words: `actors.store.tables` is what it must come to, and changes.
"""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select

from actors.store import tables as t
from actors.store.engine import located, table_of
from actors.store.errors import SchemaMismatch
from actors.store.ledger import put_state

HEAD = f"{t.SCHEMA_VERSION:04d}"
"""The newest revision."""
SCHEMA_KEY = "store.schema"
"""State in which an evolved from before Alembic kept the number. It is written still: that one then refuses too."""
_VERSIONS = Table(
    "alembic_version", MetaData(), Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)  # fmt: skip
"""As Alembic makes it."""


def found(connection: Connection) -> int:
    """The schema of the database: 0 if it is empty, larger than ours if a newer evolved wrote it."""
    known = 0
    tables = set(inspect(connection).get_table_names())
    if _VERSIONS.name in tables:
        number = connection.scalar(select(_VERSIONS.c.version_num)) or "0"
        # Not a number: no evolved that we know wrote it.
        known = int(number) if number.isdecimal() else t.SCHEMA_VERSION + 1
    if "state" in tables:
        row = table_of(t.StateRow)
        known = max(known, int(connection.scalar(select(row.c.value).where(row.c.key == SCHEMA_KEY)) or b"0"))
    return known


def check(connection: Connection) -> int:
    """The schema of the database.

    Raises:
        SchemaMismatch: a newer evolved wrote it.
    """
    number = found(connection)
    if number > t.SCHEMA_VERSION:
        raise SchemaMismatch(number, t.SCHEMA_VERSION, located(connection.engine))
    return number


def migrate(connection: Connection, now: float, until: str = HEAD) -> int:
    """Bring the database up to revision `until`; returns the schema that it had.

    Args:
        connection: in a writing transaction (`actors.store.database`).
        now: unix seconds, for what migrations write.
        until: for tests of databases between then and now.

    Raises:
        SchemaMismatch: a newer evolved wrote it; nothing was changed.
    """
    before, stamped = check(connection), inspect(connection).has_table(_VERSIONS.name)
    if before == 0 and until == HEAD:
        t.Base.metadata.create_all(connection)
        _VERSIONS.create(connection, checkfirst=True)
        connection.execute(_VERSIONS.delete())
        connection.execute(_VERSIONS.insert().values(version_num=HEAD))
    elif before < int(until) or not stamped:
        if connection.dialect.name == "postgresql":
            # Building an index anew may take longer than any statement of a daemon at work.
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        _upgrade(connection, now, f"{before:04d}" if before and not stamped else "", until)
    else:
        return before
    put_state(connection, SCHEMA_KEY, str(int(until)).encode())
    return before


def _upgrade(connection: Connection, now: float, stamp: str, until: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection, "now": now})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    if stamp:
        command.stamp(config, stamp)
    command.upgrade(config, until)
