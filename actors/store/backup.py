"""A copy of an SQLite database while others write to it: one moment's, in one file, without pages that are free."""

import os
from pathlib import Path

from sqlalchemy import Connection


def copy(connection: Connection, target: Path) -> None:
    """Copy the database of `connection` to the new file `target`, for its owner alone."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
