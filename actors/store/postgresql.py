"""PostgreSQL: how a connection is opened, and how transactions see each other.

Writers take turns, as they do in SQLite: each takes one lock of the database at the start of its transaction
(`pg_advisory_xact_lock`), so what it reads before it writes cannot change under it. Readers wait for nobody and see one
moment throughout (REPEATABLE READ, read-only). The lock goes with its transaction: a daemon that is killed keeps nobody
waiting, one that is cut off or stopped only as long as the server lets a transaction idle.
"""

import math
import re
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from actors.store import settings as waits
from actors.store.errors import StoreMisconfigured, StoreUnavailable

DRIVER = "postgresql+psycopg"
NAMES = ("postgresql", "postgres", DRIVER)
_DEFAULTS = {
    "application_name": "evolved", "connect_timeout": math.ceil(waits.CONNECT_SECONDS),
    # A server that is gone without a word is noticed within a minute.
    "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 30_000,
}  # fmt: skip
"""What the URL may say otherwise."""
_WRITERS = 0x65766F6C766564
"""The lock's number, "evolved" in ASCII: advisory locks are per database and shared by all that use them."""
_OUTAGES = re.compile(r"08|40|53|57|58|25006|25P03|55P03")
"""SQLSTATE classes (PostgreSQL manual, appendix A) that waiting may cure: connection, rolled back, resources, operator
and system; and of others: a standby that takes no writes yet, one ended for idling, a lock not had in time."""


def open_postgresql(url: URL, password_file: str, connections: int) -> Engine:
    """An engine; nothing is connected yet."""
    if "password" in url.query:
        raise StoreMisconfigured(
            "database.url: ?password= would be shown wherever the URL is; use database.password_file"
        )
    try:
        engine = create_engine(
            url.set(drivername=DRIVER),
            connect_args={name: value for name, value in _DEFAULTS.items() if name not in url.query},
            pool_pre_ping=True,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=waits.LOCK_SECONDS + waits.CONNECT_SECONDS,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise StoreMisconfigured(
            f"database.url names PostgreSQL, whose driver is not installed ({error.name}): "
            "pip install 'evolved[postgres]'"
        ) from error

    @event.listens_for(engine, "do_connect")
    def _dial(_: Any, __: Any, ___: Any, arguments: dict[str, Any]) -> None:  # pyright: ignore[reportUnusedFunction]
        if password_file:
            arguments["password"] = read_password(password_file)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        limits = {
            "lock_timeout": waits.LOCK_SECONDS,
            "statement_timeout": waits.STATEMENT_SECONDS,
            "idle_in_transaction_session_timeout": waits.IDLE_SECONDS,
        }
        for name, seconds in limits.items():
            connection.execute(f"SET {name} = {round(seconds * 1000)}")
        connection.commit()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        if connection.get_execution_options().get("writing", False):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (_WRITERS,))

    return engine


def check_encoding(connection: Connection) -> None:
    """Whether the database can hold what is to be written."""
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise StoreMisconfigured(
            f"database.url: the database has encoding {encoding}, and agents write any text: "
            "make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )


def end_silent_writer(connection: Connection) -> None:
    """End the session that has the writers' lock and waits for its client longer than a transaction may idle.

    The server does so by itself, but not where a client stopped amid statements that it sends at once (pipeline mode).
    """
    connection.exec_driver_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE locktype = 'advisory' AND (classid::bigint << 32) + objid::bigint = %s AND granted "
        "AND datname = current_database() AND usename = current_user AND wait_event_type = 'Client' "
        "AND state_change < clock_timestamp() - make_interval(secs => %s)",
        (_WRITERS, waits.IDLE_SECONDS),
    )


def outage(error: DBAPIError, url: str) -> StoreUnavailable | None:
    """What `error` means if waiting may cure it, else None."""
    code: str | None = getattr(error.orig, "sqlstate", None)
    if code is not None:
        away = _OUTAGES.match(code) is not None
    else:  # the connection was not had, or was lost: no server is there to give a code
        away = isinstance(error, OperationalError | InterfaceError)
    if not (away or error.connection_invalidated):
        return None
    return StoreUnavailable(f"database.url {url}: {str(error.orig).strip()}")


def read_password(name: str) -> str:
    """The password in the file `name`."""
    try:
        return Path(name).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise StoreUnavailable(f"database.password_file {name}: {why}") from error
