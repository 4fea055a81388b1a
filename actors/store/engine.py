"""The database engine: what depends on which database it is talks here, and in `actors.store.postgresql`.

SQLite runs in WAL mode with `synchronous=NORMAL`: a crash of the process loses nothing, a power cut the last moments,
which the streams deliver again. What is deleted is overwritten (`secure_delete`). Writers take the write lock at the
start: a read lock that is upgraded later fails at once instead of waiting. What waiting may cure is `StoreUnavailable`.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.dialects import postgresql as postgresql_dialect
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from actors.store import postgresql
from actors.store import settings as waits
from actors.store.errors import StoreMisconfigured, StoreUnavailable
from actors.store.tables import Base

T = TypeVar("T")
_VARIABLES = 999
"""Values in one statement: SQLite's oldest limit."""
_LOOK_SECONDS = 0.02
_DAMAGE = ("disk image is malformed", "file is not a database", "database corruption")
_DEFECTS = ("no such table", "no such column", "syntax error", "has no column")
"""SQLite reports defects of a statement in the class of errors that it reports outages in; waiting cures none."""


def open_engine(url: str, password_file: str = "", connections: int = waits.CONNECTIONS) -> Engine:
    """An engine for `url`: `sqlite:///path/to/file.db` or `postgresql+psycopg://...`, whose user's password is in
    `password_file`, read anew for every connection: a change needs no restart."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return _telling(postgresql.open_postgresql(parsed, password_file, connections))
    if not parsed.database or parsed.database == ":memory:":
        raise StoreMisconfigured("the store is used from several threads: an SQLite database must be a file")
    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = _sqlite(url)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        # The driver's own implicit BEGIN is deferred and comes late; `_begin` does it instead.
        connection.isolation_level = None
        _to_wal(connection, waits.LOCK_SECONDS)
        for pragma in ("synchronous=NORMAL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def open_read_only(url: str, password_file: str = "") -> Engine:
    """An engine that writes nothing and makes nothing."""
    parsed = _parsed(url)
    if parsed.get_backend_name() != "sqlite":
        return reading(open_engine(url, password_file))
    path = Path(parsed.database or "").absolute()
    if not path.is_file():
        raise StoreUnavailable(
            f"no store at {path}; name the state_dir or the database.url of the daemon that wrote it"
        )
    return _sqlite(f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true")


def _sqlite(url: str) -> Engine:
    arguments = {"timeout": waits.LOCK_SECONDS, "check_same_thread": False}
    return _telling(create_engine(url, connect_args=arguments, hide_parameters=True))


def _to_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """SQLite does not wait for a writer when it changes the journal's mode, as at the first open of a restored file."""
    end = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(_LOOK_SECONDS)


def sqlite_file(url: str) -> Path | None:
    """The SQLite file at `url`; None for a database elsewhere."""
    parsed = make_url(url)
    return Path(parsed.database).absolute() if parsed.get_backend_name() == "sqlite" and parsed.database else None


def located(engine: Engine) -> str:
    """Where the database is, for people: its file, or its URL without the password."""
    if engine.dialect.name == "sqlite":
        return str(Path(unquote((engine.url.database or "").removeprefix("file:"))).absolute())
    return engine.url.render_as_string(hide_password=True)


def reading(engine: Engine) -> Engine:
    """`engine` for transactions that only read, each one state of the database: SQLite's are so by themselves."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        parsed.get_backend_name()
    except (ArgumentError, ValueError):
        # Not chained: the parser's text quotes what it stumbled over, which may be a password.
        raise StoreMisconfigured(
            "database.url is no URL; write sqlite:////absolute/path.db or postgresql+psycopg://USER@HOST:PORT/DATABASE "
            "(a %, @, : or / within a name as %25, %40, %3A, %2F)"
        ) from None
    if parsed.get_backend_name() != "sqlite" and parsed.drivername not in postgresql.NAMES:
        raise StoreMisconfigured(
            f"database.url: {parsed.drivername} is not supported; write sqlite:////absolute/path.db or "
            f"{postgresql.DRIVER}://USER@HOST/DATABASE"
        )
    return parsed


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in parts."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def insert_new(connection: Connection, kind: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    """Insert `rows`, which have the same columns, but for those whose unique key is there already."""
    if not rows:
        return
    if connection.dialect.name != "sqlite":
        connection.execute(postgresql_dialect.insert(kind).on_conflict_do_nothing(), list(rows))
        return
    # In the table's order, in which SQLAlchemy writes them.
    names = tuple(column.key for column in kind.__table__.columns if column.key in rows[0])
    for part in chunks(rows, max(1, _VARIABLES // len(names))):
        values = tuple([row[name] for row in part for name in names])
        connection.exec_driver_sql(_insert(kind, names, len(part)), values)


@lru_cache(maxsize=1024)
def _insert(kind: type[Base], columns: Sequence[str], rows: int) -> str:
    """One statement for many rows. Row by row the driver would ask for the interpreter between any two, and while
    another thread computes, each asking takes that thread's time slice, 5 ms."""
    one = str(sqlite.insert(kind).values(dict.fromkeys(columns)).compile(dialect=sqlite.dialect()))
    return one + f", ({', '.join('?' * len(columns))})" * (rows - 1) + " ON CONFLICT DO NOTHING"


def fold(engine: Engine) -> bool:
    """Write SQLite's log back into the database and empty it; False if a reader was in the way, or the database is
    PostgreSQL, which overwrites what was deleted when its vacuum and its log come round to it."""
    if engine.dialect.name != "sqlite":
        return False
    with closing(engine.raw_connection()) as connection:
        return not connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]


def _telling(engine: Engine) -> Engine:
    @event.listens_for(engine, "handle_error")
    def _tell(context: ExceptionContext) -> StoreUnavailable | None:  # pyright: ignore[reportUnusedFunction]
        error = context.sqlalchemy_exception
        if context.is_pre_ping or not isinstance(error, DBAPIError):
            return None  # a connection that was lost meanwhile is replaced
        return (_outage if engine.dialect.name == "sqlite" else postgresql.outage)(error, located(engine))

    return engine


def _outage(error: DBAPIError, path: str) -> StoreUnavailable | None:
    """What `error` means if waiting may cure it, else None."""
    text = str(error.orig)
    if any(sign in text for sign in _DAMAGE):
        # Waited out like an outage: else each record would fail, and be parked, for a fault that is none of its own.
        return StoreUnavailable(
            f"{path} is damaged: {text}; stop the daemon and restore the newest backup (evolved db restore). Calls "
            "wait in the tap's spool meanwhile"
        )
    if not isinstance(error, OperationalError | InterfaceError) or any(defect in text for defect in _DEFECTS):
        return None
    if "full" in text:
        text += f"; make room on the disk of {Path(path).parent} (what is kept: [keep]), or move state_dir"
    return StoreUnavailable(f"{path}: {text}")
