"""`evolved db backup`: the store and what it does not hold, while the daemon runs.

    backup.json      what is in it, with SHA-256 and size of each file, schema and end of the audit trail
    evolved.db       the store, if it is SQLite's: PostgreSQL is copied by its own pg_dump
    config.toml      the settings that it was made with
    state/...        as below state_dir: manifests of versions, registered adapters, snapshots of lessons, FREEZE; keys/
                     and live secrets if asked for

A directory; it appears whole or not at all. Weights are not in it: versions/
and learner/ are files that are written once, for rsync to copy.
"""

import hashlib
import os
import shutil
import time
from functools import partial
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from actors.messages import MANIFEST, SIGNATURE
from actors.messages.files import fsync
from actors.store import StoreError
from actors.store.archive import ask
from actors.store.audit import Head, verify
from actors.store.backup import copy
from actors.store.engine import sqlite_file
from actors.store.schema import check
from daemon.errors import CommandFailed
from daemon.live.settings import SECRETS
from daemon.settings.tables import Config

CONTENTS = "backup.json"
DATABASE = "evolved.db"
_ALWAYS = ("live/adapters.json", "versions/pinned", "lessons", "FREEZE", "routes.json")
_SECRET = ("keys", SECRETS)


class Entry(msgspec.Struct, frozen=True):
    """A file of a backup."""

    name: str
    sha256: str
    size: int


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """`backup.json`."""

    created: float
    """Unix seconds at which it was begun: all that was committed before is in it."""
    schema: str
    database: bool
    """The store is in it."""
    head: str
    """Where the audit trail ends, "SEQUENCE:HASH"."""
    keys: bool = False
    files: tuple[Entry, ...] = ()


def backup(config: Config, out: Path, *, settings: Path | None, with_keys: bool) -> Contents:
    """Write a backup to `out`."""
    if out.exists():
        raise CommandFailed(f"{out} exists; a backup is never written over another, name a new one")
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True, mode=0o700)
        contents = _fill(config, aside, settings, with_keys)
        aside.rename(out)
        fsync(out.parent)
    except StoreError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"{error.filename or out}: {error.strerror or error}; nothing was kept of it") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return contents


def _fill(config: Config, aside: Path, settings: Path | None, with_keys: bool) -> Contents:
    created, url, database = time.time(), config.store_url, sqlite_file(config.store_url)
    if database is not None:
        ask(url, partial(copy, target=aside / DATABASE))
        url = f"sqlite:///{aside / DATABASE}"
    schema, head = ask(url, _looked, config.database.password_file)
    names = [*_ALWAYS, *(_SECRET if with_keys else ())]
    if with_keys and config.keys is not None and config.state in config.keys.parents:
        names.append(str(config.keys.relative_to(config.state)))
    for path in (config.state / "versions").glob("v*"):
        names += [f"versions/{path.name}/{name}" for name in (MANIFEST, SIGNATURE)]
    for name in names:
        _take(config.state, name, aside / "state")
    if settings is not None:
        shutil.copyfile(settings, aside / "config.toml")
    files = [Entry(str(path.relative_to(aside)), digest(path), path.stat().st_size) for path in _files(aside)]
    contents = Contents(
        created=created, schema=schema, database=database is not None, head=str(head), keys=with_keys,
        files=tuple(files),
    )  # fmt: skip
    (aside / CONTENTS).write_bytes(msgspec.json.format(msgspec.json.encode(contents), indent=1))
    for path in _files(aside):
        fsync(path)
    return contents


def _looked(connection: Connection) -> tuple[str, Head]:
    """The schema, and the end of the sound audit trail."""
    found = verify(connection)
    if found.problem:
        raise CommandFailed(f"the audit trail is broken ({found.problem}): `evolved db check` tells more; look first")
    return check(connection), found.head


def _take(state: Path, name: str, target: Path) -> None:
    """Copy a file or a directory below `state`, if it is there, to the same place below `target`."""
    source, there = state / name, target / name
    if source.is_symlink() or not source.exists():
        return
    there.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if source.is_dir():
        shutil.copytree(source, there, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, there)


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
