"""`evolved db restore`: a backup becomes the state of a daemon that does not run.

    held alone -> unpacked beside -> digests, audit trail -> old aside -> new in place -> consumers to be rewound

What is there is never deleted: it moves to <state>/before-restore-TIME. A database in PostgreSQL is restored by its own
pg_restore before this. The streams are no part of a backup: what they still hold of the time after it is handled again
(see `daemon.upkeep.consumer_reset`).
"""

import contextlib
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from sqlalchemy.exc import DBAPIError

from actors.store import StoreError
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.engine import open_engine, sqlite_file
from actors.store.ledger import put_state
from actors.store.schema import check
from daemon.errors import TransferFailed
from daemon.processes.state_lock import state_lock
from daemon.settings.tables import Config
from daemon.upkeep.backup import CONTENTS, DATABASE, Contents, digest
from daemon.upkeep.consumer_reset import REWIND

Report = Callable[[str], None]


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
        TransferFailed: the backup is damaged, or something is in the way; nothing was changed.
        StartFailed: a daemon holds the state directory.
    """
    with state_lock(config.state, alone=True), contextlib.ExitStack() as stack:
        unpacked = _unpacked(source, config.state, stack)
        try:
            contents = _checked(unpacked, say)
            return _put(config, unpacked, contents, force)
        except StoreError as error:
            raise TransferFailed(str(error)) from error
        except OSError as error:
            raise TransferFailed(f"{config.state}: {error}") from error


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


def _checked(directory: Path, say: Report) -> Contents:
    """What `backup.json` says, once all of it is true."""
    try:
        contents = msgspec.json.decode((directory / CONTENTS).read_bytes(), type=Contents)
    except (OSError, msgspec.DecodeError) as error:
        raise TransferFailed(f"no backup of evolved: {CONTENTS}: {error}; nothing was changed") from error
    listed = {entry.name for entry in contents.files}
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()} - {CONTENTS}
    if there != listed:
        wrong = sorted(there ^ listed)[0]
        raise TransferFailed(f"the backup is damaged: {wrong} is missing, or not of it; nothing was changed")
    say(f"checks {len(contents.files):,} files")
    for entry in contents.files:
        if digest(directory / entry.name) != entry.sha256:
            raise TransferFailed(f"the backup is damaged: {entry.name} is not what was written; nothing was changed")
    if contents.database:
        found = ask(f"sqlite:///{directory / DATABASE}", verify)
        problem = found.problem or ("" if str(found.head) == contents.head else f"it does not end at {contents.head}")
        if problem:
            raise TransferFailed(f"the backup's audit trail is broken: {problem}")
    return contents


def _put(config: Config, unpacked: Path, contents: Contents, force: bool) -> Restored:
    database = sqlite_file(config.store_url)
    if (database is not None) != contents.database:
        kind = "SQLite" if contents.database else "PostgreSQL"
        raise TransferFailed(f"the backup is of an installation on {kind}: name a database of its kind")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    before = config.state / f"before-restore-{stamp}"
    tops = sorted((unpacked / "state").glob("*")) if (unpacked / "state").is_dir() else []
    files = [database.with_name(database.name + end) for end in ("", "-wal", "-shm")] if database else []
    moves = [(path, before / path.name) for path in (*files, *(config.state / path.name for path in tops))]
    moves = [(old, new) for old, new in moves if old.exists()]
    if moves and not force:
        raise TransferFailed(
            f"{moves[0][0]} is there already; --force moves it aside to {before.name} first, nothing is deleted"
        )
    if database is None:
        _mark(config.store_url, contents.created, config.database.password_file)
    for old, new in moves:
        new.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old.rename(new)
    if database is not None:
        _mark(f"sqlite:///{unpacked / DATABASE}", contents.created)
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(unpacked / DATABASE, database)
    for path in tops:
        shutil.move(path, config.state / path.name)
    settings = ""
    if (unpacked / "config.toml").is_file():
        kept = config.state / f"config-of-backup-{stamp}.toml"
        shutil.move(unpacked / "config.toml", kept)
        settings = str(kept)
    return Restored(contents=contents, aside=str(before) if moves else "", settings=settings)


def _mark(url: str, created: float, password_file: str = "") -> None:
    """Note in the store that consumers stand further than it does."""
    engine = open_engine(url, password_file)
    try:
        with engine.begin() as connection:
            check(connection)
            put_state(connection, REWIND, str(created).encode())
    except DBAPIError as error:
        raise TransferFailed(f"{engine.url.render_as_string()}: {error.orig}") from error
    finally:
        engine.dispose()
