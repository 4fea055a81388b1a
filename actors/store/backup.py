"""A copy of the database while others write to it, and the way back.

SQLite is copied by its online backup API (sqlite.org/backup.html), some pages at a time, out of one read transaction:
without that a copy begins anew whenever another connection has written, and under a busy daemon never ends. Writers go
on meanwhile; only the log cannot be folded back until the copy is done. PostgreSQL is copied by its own pg_dump, which
does the same with a snapshot.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from actors.store.engine import open_engine
from actors.store.errors import StoreUnavailable
from actors.store.postgresql import read_password

Report = Callable[[int, int], None]
"""Told how many bytes of how many are done."""
SQLITE, POSTGRESQL = "evolved.db", "evolved.pgdump"
"""Names of the copies."""
_PAGES = 512
_PAUSE = 0.002
"""Seconds between two steps, for those that want the disk too."""
_BUSY_SECONDS = 20.0
_SECONDS = 6 * 3600.0
"""After which pg_dump or pg_restore is given up."""


def copy(url: str, directory: Path, report: Report, password_file: str = "") -> Path:
    """Copy the database at `url` into `directory`; the file, for its owner alone."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        target = directory / POSTGRESQL
        _run(["pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={target}"], parsed, password_file)
        target.chmod(0o600)
        return target
    source, target = Path(parsed.database or "").absolute(), directory / SQLITE
    if not source.is_file():
        raise StoreUnavailable(
            f"no store at {source}; name the state_dir or the database.url of the daemon that wrote it"
        )
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        _copy_sqlite(source, target, report)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{source} to {target}: {error}") from error
    return target


def _copy_sqlite(source: Path, target: Path, report: Report) -> None:
    with (
        closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as old,
        closing(sqlite3.connect(target)) as new,
    ):
        old.isolation_level = None
        size = old.execute("PRAGMA page_size").fetchone()[0]
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it is one moment's database
        old.backup(
            new, pages=_PAGES, sleep=_PAUSE,
            progress=lambda _, left, pages: report((pages - left) * size, pages * size),
        )  # fmt: skip
        # One file, without a log beside it.
        new.execute("PRAGMA journal_mode=DELETE").fetchone()


def put_back(url: str, dump: Path, password_file: str = "") -> None:
    """Fill the empty PostgreSQL database at `url` from `dump`.

    Raises:
        StoreUnavailable: it cannot be reached, refuses the dump, or there is no pg_restore; nothing was written.
    """
    _run(
        ["pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", str(dump)],
        make_url(url), password_file, database_option=True,
    )  # fmt: skip


def set_aside(url: str, name: str, password_file: str = "") -> None:
    """Move all that is in the PostgreSQL database's schema "public" into one called `name`."""
    engine = open_engine(url, password_file)
    quoted = engine.dialect.identifier_preparer.quote(name)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"ALTER SCHEMA public RENAME TO {quoted}")
            connection.exec_driver_sql("CREATE SCHEMA public")
    except DBAPIError as error:
        raise StoreUnavailable(
            f"{engine.url.render_as_string()}: {error.orig}; restore as the owner of the database"
        ) from error
    finally:
        engine.dispose()


def _run(command: list[str], url: URL, password_file: str, *, database_option: bool = False) -> None:
    """A tool of PostgreSQL's client."""
    tool = shutil.which(command[0])
    if tool is None:
        raise StoreUnavailable(
            f"{command[0]} is not on PATH, and copies of PostgreSQL are its work; install the client tools of the "
            "server's version (Debian: apt install postgresql-client)"
        )
    secret = read_password(password_file) if password_file else str(url.password or "")
    # As libpq reads it, without the secret: a command line is seen by everybody on the machine.
    plain = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
    environment = {**os.environ, **({"PGPASSWORD": secret} if secret else {})}
    line = [
        tool,
        *(["--dbname", plain] if database_option else []),
        *command[1:],
        *([] if database_option else [plain]),
    ]
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"{command[0]}: {error}") from error
    if done.returncode:
        raise StoreUnavailable(f"{command[0]}: {done.stderr.strip()[-500:]}")
