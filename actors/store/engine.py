"""The database engine: everything that knows which database it is talks here, and only here.

SQLite runs in WAL mode with a busy timeout and `synchronous=NORMAL`: a crash of the process loses nothing, a power cut
the last moments, which the streams deliver again. What is deleted or replaced is overwritten (`secure_delete`), so that
what was forgotten is not left in free pages. Writers take the write lock at the start of their transaction: a read
lock that is upgraded later fails at once instead of waiting.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from actors.store.errors import StoreUnavailable
from actors.store.tables import Base

T = TypeVar("T")
_BUSY_SECONDS = 20.0
_VARIABLES = 999
"""Values in one statement: SQLite's oldest limit."""
_IN = 500
"""Values in one IN clause: below SQLite's oldest limit."""
_DEFECTS = ("no such table", "no such column", "syntax error", "has no column")
"""SQLite reports defects of a statement in the class of errors that it reports outages in; waiting cures none."""


def open_engine(url: str) -> Engine:
    """An engine for `url`: `sqlite:///path/to/file.db` or anything else that SQLAlchemy has a driver for."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True)
    if not parsed.database or parsed.database == ":memory:":
        raise ValueError("the store is used from several threads: an SQLite database must be a file")
    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        # The driver's own implicit BEGIN is deferred and comes late; `_begin` does it instead.
        connection.isolation_level = None
        busy = f"busy_timeout={int(_BUSY_SECONDS * 1000)}"
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON", busy):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def located(engine: Engine) -> str:
    """Where the database is, for people: its file, or its URL without the password."""
    if engine.dialect.name == "sqlite":
        return str(Path(engine.url.database or "").absolute())
    return engine.url.render_as_string(hide_password=True)


def table_of(row: type[Base]) -> Table:
    """The Core table of a declarative class."""
    table = row.__table__
    assert isinstance(table, Table)
    return table


def chunks(items: Sequence[T], size: int = _IN) -> Iterator[Sequence[T]]:
    """`items` in parts that fit an IN clause."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def insert_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert `rows`, which have the same columns, leaving out those that collide with a unique key of a row that is
    there."""
    if not rows:
        return
    if connection.dialect.name != "sqlite":
        connection.execute(postgresql.insert(table).on_conflict_do_nothing(), list(rows))
        return
    # In the table's order, in which SQLAlchemy writes them.
    names = tuple(column.key for column in table.columns if column.key in rows[0])
    for part in chunks(rows, max(1, _VARIABLES // len(names))):
        values = tuple([row[name] for row in part for name in names])
        connection.exec_driver_sql(_insert(table, names, len(part)), values)


@lru_cache(maxsize=1024)
def _insert(table: Table, columns: Sequence[str], rows: int) -> str:
    """One statement for many rows. Row by row the driver would ask for the interpreter between any two, and while
    another thread computes, each asking takes that thread's time slice, 5 ms."""
    values = [dict.fromkeys(columns) for _ in range(rows)]
    return str(sqlite.insert(table).values(values).on_conflict_do_nothing().compile(dialect=sqlite.dialect()))


def fold(engine: Engine) -> bool:
    """Write SQLite's log back into the database and empty it; False if a reader was in the way."""
    if engine.dialect.name != "sqlite":
        return True
    connection = engine.raw_connection()
    try:
        cursor = connection.cursor()
        busy = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        cursor.close()
        return not busy
    finally:
        connection.close()


def outage(error: DBAPIError) -> StoreUnavailable | None:
    """What `error` means if waiting may cure it, else None."""
    if not (isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated):
        return None
    text = str(error.orig)
    if any(defect in text for defect in _DEFECTS):
        return None
    return StoreUnavailable(text)
