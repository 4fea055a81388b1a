"""`evolved db restore`: a backup becomes the state of a daemon that does not run.

    held alone -> unpacked beside -> digests, audit trail -> old aside -> new in place -> consumers to be rewound

What is there is never deleted: it moves to <state>/before-restore-TIME. The streams are no part of a backup: what they
still hold of the time after it is handled again (see `daemon.upkeep.consumer_reset`).
"""

import contextlib
import os
import shutil
import socket
import sqlite3
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from sqlalchemy import inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from actors.store import StoreError
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.backup import POSTGRESQL, put_back, set_aside
from actors.store.engine import open_engine
from daemon.errors import TransferFailed
from daemon.processes.state_lock import state_lock
from daemon.settings.reading import address
from daemon.settings.tables import Config
from daemon.upkeep.backup import CONTENTS, FORMAT, Contents, digest
from daemon.upkeep.consumer_reset import REWIND

Report = Callable[[str], None]
_CONNECT_SECONDS = 2.0


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    contents: Contents
    aside: str = ""
    """Where what was there before is now; empty if there was nothing."""
    settings: str = ""
    """Where the backup's settings are, to be compared with yours; empty if it holds none."""


def restore(config: Config, source: Path, *, force: bool, say: Report) -> Restored:
    """Put the backup `source` in place.

    Args:
        force: also where there is something already, which moves aside.

    Raises:
        TransferFailed: the backup is damaged, something is in the way, or a daemon answers; nothing was changed.
        StartFailed: a daemon holds the state directory.
    """
    with state_lock(config.state, alone=True), contextlib.ExitStack() as stack:
        _nobody_answers(config)
        unpacked = _unpacked(source, config.state, stack)
        contents = _checked(unpacked, config, say)
        try:
            return _put(config, unpacked, contents, force, say)
        except StoreError as error:
            raise TransferFailed(str(error)) from error
        except (OSError, sqlite3.Error) as error:
            raise TransferFailed(f"{config.state}: {error}") from error


def _nobody_answers(config: Config) -> None:
    where = address(config.control.listen, "control.listen")
    with contextlib.suppress(OSError), socket.create_connection(where, _CONNECT_SECONDS):
        raise TransferFailed(f"somebody answers on control.listen {config.control.listen}: stop the daemon first")


def _unpacked(source: Path, state: Path, stack: contextlib.ExitStack) -> Path:
    """A directory with the backup that may be moved away file by file."""
    if not source.exists():
        raise TransferFailed(f"{source}: no such backup")
    aside = state / f".restore.{os.getpid()}"
    stack.callback(shutil.rmtree, aside, ignore_errors=True)
    try:
        if source.is_dir():
            shutil.copytree(source, aside, symlinks=True)
        else:
            aside.mkdir(mode=0o700)
            with tarfile.open(source) as tar:
                tar.extractall(aside, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise TransferFailed(f"{source} cannot be unpacked in {state}: {error}; nothing was changed") from error
    return aside


def _checked(directory: Path, config: Config, say: Report) -> Contents:
    """What `backup.json` says, once all of it is true."""
    try:
        contents = msgspec.json.decode((directory / CONTENTS).read_bytes(), type=Contents)
    except (OSError, msgspec.DecodeError) as error:
        raise TransferFailed(f"no backup of evolved: {CONTENTS}: {error}; nothing was changed") from error
    if contents.format > FORMAT:
        raise TransferFailed(f"a backup of format {contents.format}, this evolved reads {FORMAT}: use a newer one")
    listed = {entry.name for entry in contents.files}
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()} - {CONTENTS}
    if there != listed:
        wrong = sorted(there ^ listed)[0]
        raise TransferFailed(f"the backup is damaged: {wrong} is missing, or not of it; nothing was changed")
    said = time.monotonic()
    for number, entry in enumerate(contents.files):
        if time.monotonic() - said > 2.0:
            said = time.monotonic()
            say(f"checked {number:,} of {len(contents.files):,} files")
        if digest(directory / entry.name) != entry.sha256:
            raise TransferFailed(f"the backup is damaged: {entry.name} is not what was written; nothing was changed")
    if contents.database != POSTGRESQL:
        _sound(f"sqlite:///{directory / contents.database}", contents, config)
    return contents


def _sound(url: str, contents: Contents, config: Config) -> None:
    """Hold the audit trail against the head that the backup was written with."""
    try:
        found = ask(url, verify, config.database.password_file)
    except StoreError as error:
        raise TransferFailed(str(error)) from error
    if found.problem or str(found.head) != contents.head:
        raise TransferFailed(
            f"the backup's audit trail is broken: {found.problem or f'it ends at {found.head}, not {contents.head}'}"
        )


def _put(config: Config, unpacked: Path, contents: Contents, force: bool, say: Report) -> Restored:
    url = make_url(config.store_url)
    sqlite = url.get_backend_name() == "sqlite"
    if sqlite != (contents.database != POSTGRESQL):
        kind = "SQLite" if contents.database != POSTGRESQL else "PostgreSQL"
        raise TransferFailed(
            f"the backup is of {kind} and database.url is {url.render_as_string()}: name one of its kind"
        )
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    before = config.state / f"before-restore-{stamp}"
    moves: list[tuple[Path, Path]] = []
    database = Path(url.database or "").absolute()
    if sqlite:
        moves += [
            (database.with_name(database.name + end), before / (database.name + end)) for end in ("", "-wal", "-shm")
        ]
    tops = sorted((unpacked / "state").glob("*")) if (unpacked / "state").is_dir() else []
    moves += [(config.state / path.name, before / path.name) for path in tops]
    moves = [(old, new) for old, new in moves if old.exists()]
    tables = [] if sqlite else _tables(config)
    if (moves or tables) and not force:
        what = moves[0][0] if moves else f"{url.render_as_string()} has tables"
        raise TransferFailed(
            f"{what} is there already; --force moves it aside to {before.name} first, nothing is deleted"
        )
    for old, new in moves:
        new.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old.rename(new)
    if sqlite:
        _mark(unpacked / contents.database, contents.created)
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(unpacked / contents.database, database)
    else:
        if tables:
            set_aside(config.store_url, f"before_restore_{stamp.replace('-', '_')}", config.database.password_file)
        say("store: pg_restore")
        put_back(config.store_url, unpacked / contents.database, config.database.password_file)
        _sound(config.store_url, contents, config)
        _mark_postgresql(config, contents.created)
    for path in tops:
        shutil.move(path, config.state / path.name)
    settings = ""
    if (unpacked / "config.toml").is_file():
        kept = config.state / f"config-of-backup-{stamp}.toml"
        shutil.move(unpacked / "config.toml", kept)
        settings = str(kept)
    aside = str(before) if moves else ""
    return Restored(contents=contents, aside=aside, settings=settings)


def _mark(database: Path, created: float) -> None:
    """Note in the store that consumers stand further than it does."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO state (key, value) VALUES (?, ?)", (REWIND, str(created).encode()))


def _mark_postgresql(config: Config, created: float) -> None:
    engine = open_engine(config.store_url, config.database.password_file)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM state WHERE key = %s", (REWIND,))
            connection.exec_driver_sql("INSERT INTO state VALUES (%s, %s)", (REWIND, str(created).encode()))
    finally:
        engine.dispose()


def _tables(config: Config) -> list[str]:
    """Tables of the PostgreSQL database, if no daemon is connected to it."""
    engine = open_engine(config.store_url, config.database.password_file)
    try:
        with engine.connect() as connection:
            others = connection.exec_driver_sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND application_name LIKE 'evolved%%'"
            ).scalar_one()
            if others:
                raise TransferFailed(
                    f"{others} connections of daemons to {engine.url.render_as_string()}: stop them first"
                )
            return inspect(connection).get_table_names()
    except DBAPIError as error:
        raise TransferFailed(f"{engine.url.render_as_string()}: {error.orig}") from error
    finally:
        engine.dispose()
