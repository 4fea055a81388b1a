"""What can go wrong in the store.

StoreError
├── StoreUnavailable     locked, full, damaged, disconnected: also a `DependencyUnavailable`, so actors wait it out
├── StoreMisconfigured   database.url or what it needs cannot work; waiting cures nothing
└── SchemaMismatch       the database was written by an evolved with other tables
"""

from actors.system.errors import DependencyUnavailable


class StoreError(Exception):
    """Root of this package's errors."""


class StoreUnavailable(StoreError, DependencyUnavailable):
    """The database does not take the statement now; nothing of the transaction was written."""


class StoreMisconfigured(StoreError, ValueError):
    """Names the setting under [database] and the remedy; shows no password."""


class SchemaMismatch(StoreError):
    """The database at `where` has schema `found`, not `wanted` (digests, see `actors.store.schema`)."""

    def __init__(self, found: str, wanted: str, where: str = "the database") -> None:
        super().__init__(
            f"{where} has schema {found}, this evolved needs {wanted}: export it with the evolved that wrote it "
            f"(commit fc2e5e3 is the last that reads numbered ones) and import it into a new database, or "
            "restore a backup that this evolved made (evolved db restore)"
        )
