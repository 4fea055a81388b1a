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
from actors.store.outcome_reading import Correction, LateOutcome
from actors.store.reading import DeadRow
from actors.store.records import Dropped, Effect, Guessed, HeardUntil, Joined, Late
from actors.store.saving import stitchable
from actors.store.spans import Span
from actors.store.store import Store

__all__ = [
    "BatchLine",
    "Correction",
    "DeadRow",
    "Dropped",
    "Effect",
    "Guessed",
    "HeardUntil",
    "Joined",
    "Judged",
    "Late",
    "LateOutcome",
    "Lineage",
    "OutcomeRow",
    "SchemaMismatch",
    "Span",
    "Store",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "UnknownRecord",
    "VersionLine",
    "stitchable",
]
