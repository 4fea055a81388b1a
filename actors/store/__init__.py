"""What evolved keeps: SQLAlchemy tables, and `Store`, their repository and the system's ledger."""

from actors.ports.store import OutcomeRow
from actors.store.errors import (
    SchemaMismatch,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    UnknownRecord,
)
from actors.store.lineage import BatchLine, Judged, Lineage, VersionLine
from actors.store.reading import DeadRow
from actors.store.records import Dropped, Guessed, Joined, Late, Used
from actors.store.saving import stitchable
from actors.store.spans import Span
from actors.store.store import Store

__all__ = [
    "BatchLine",
    "DeadRow",
    "Dropped",
    "Guessed",
    "Joined",
    "Judged",
    "Late",
    "Lineage",
    "OutcomeRow",
    "SchemaMismatch",
    "Span",
    "Store",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "UnknownRecord",
    "Used",
    "VersionLine",
    "stitchable",
]
