"""The one schema: made from `actors.store.tables`, and known by the digest of its DDL, which is kept in the database.

A database with another digest is refused and left as it is: it is exported by the evolved that wrote it.
"""

from functools import lru_cache
from hashlib import sha256

from sqlalchemy import Connection, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from actors.store.engine import located
from actors.store.errors import SchemaMismatch
from actors.store.ledger import get_state, put_state
from actors.store.postgresql import check_encoding
from actors.store.tables import Base, State

KEY = "store.schema"
"""State that holds the digest; an evolved with migrations kept their number there."""


@lru_cache(1)
def wanted() -> str:
    """The digest of the tables as they are here, the same for SQLite and PostgreSQL."""
    told = sha256()
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        for table in Base.metadata.sorted_tables:
            indexes = sorted(table.indexes, key=lambda index: str(index.name))
            for element in (CreateTable(table), *(CreateIndex(index) for index in indexes)):
                told.update(" ".join(str(element.compile(dialect=dialect)).split()).encode())
    return told.hexdigest()[:16]


def found(connection: Connection) -> str:
    """What the database says of itself; empty if nothing was ever written to it."""
    if not inspect(connection).has_table(State.__tablename__):
        return ""
    return (get_state(connection, KEY) or b"without a digest").decode(errors="replace")


def check(connection: Connection) -> str:
    """The database's schema, which is the one that is wanted."""
    if (digest := found(connection)) != wanted():
        raise SchemaMismatch(digest or "none", wanted(), located(connection.engine))
    return digest


def create(connection: Connection) -> None:
    """In a writing transaction: make the tables in an empty database; one that has them must have these."""
    if connection.dialect.name == "postgresql":
        check_encoding(connection)
    if found(connection):
        check(connection)
        return
    Base.metadata.create_all(connection)
    put_state(connection, KEY, wanted().encode())
