"""What evolved keeps: SQLAlchemy tables, and `Store`, their repository and the system's ledger."""

from actors.ports.store import OutcomeRow
from actors.store.errors import (
    SchemaMismatch,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    UnknownRecord,
)
from actors.store.ledger import DeadRow
from actors.store.records import Dropped, Guessed, Joined, Used
from actors.store.saving import stitchable
from actors.store.store import Store

__all__ = [
    "DeadRow",
    "Dropped",
    "Guessed",
    "Joined",
    "OutcomeRow",
    "SchemaMismatch",
    "Store",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "UnknownRecord",
    "Used",
    "stitchable",
]
