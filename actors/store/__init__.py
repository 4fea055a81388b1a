"""What evolved keeps: SQLAlchemy tables, and `Store`, their repository and the system's ledger."""

from actors.store.errors import SchemaMismatch, StoreError, StoreMisconfigured, StoreUnavailable
from actors.store.records import Beside, Dropped, Guessed, Joined, Used
from actors.store.saving import stitchable
from actors.store.store import Store

__all__ = [
    "Beside",
    "Dropped",
    "Guessed",
    "Joined",
    "SchemaMismatch",
    "Store",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Used",
    "stitchable",
]
