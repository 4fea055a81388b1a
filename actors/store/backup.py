"""A copy of an SQLite database while others write to it, by its online backup API (sqlite.org/backup.html).

Some pages at a time, out of one read transaction: without that a copy begins anew whenever another connection has
written, and under a busy daemon never ends.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from actors.store.errors import StoreUnavailable

_PAGES = 512
_PAUSE = 0.002
"""Seconds between two steps, for those that want the disk too."""
_BUSY_SECONDS = 20.0
_SAY_SECONDS = 2.0


def copy(source: Path, target: Path, report: Callable[[float], None]) -> None:
    """Copy the database `source` to the new file `target`, for its owner alone.

    Args:
        report: told every two seconds which share is done.
    """
    said = time.monotonic()

    def progress(_: int, left: int, pages: int) -> None:
        nonlocal said
        if time.monotonic() - said > _SAY_SECONDS:
            said = time.monotonic()
            report(1.0 - left / pages)

    if not source.is_file():
        raise StoreUnavailable(f"no store at {source}; name the state_dir of the daemon that wrote it")
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    address = f"file:{quote(str(source))}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.isolation_level = None
            old.execute("BEGIN")
            old.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it is one moment's database
            old.backup(new, pages=_PAGES, sleep=_PAUSE, progress=progress)
            # One file, without a log beside it.
            new.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{source} to {target}: {error}") from error
