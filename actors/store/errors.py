"""What can go wrong in the store.

StoreError
├── StoreUnavailable     locked, full, disconnected: also a `DependencyUnavailable`, so actors wait it out
├── StoreMisconfigured   store.url or what it needs cannot work; waiting cures nothing
├── SchemaMismatch       the database was written by a newer evolved
├── UnknownRecord        an actor asked to save something that the store has no table for
└── TooManyOpinions      a lesson has as many voices as are counted, or a key changed its mind too often
"""

from actors.system.errors import DependencyUnavailable


class StoreError(Exception):
    """Root of this package's errors."""


class StoreUnavailable(StoreError, DependencyUnavailable):
    """The database does not take the statement now; nothing of the transaction was written."""


class StoreMisconfigured(StoreError, ValueError):
    """Names the setting under [store] and the remedy; shows no password."""


class SchemaMismatch(StoreError):
    """The database has schema `found`, this process knows up to `known`."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"the database has schema {found}, this evolved knows up to {known}: upgrade it first")
        self.found, self.known = found, known


class UnknownRecord(StoreError):
    """A message type without a table."""


class TooManyOpinions(StoreError):
    """Says which bound was reached; nothing was counted."""
