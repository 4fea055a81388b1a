"""What is asked for every few seconds, the counts and the newest of every kind, without reading whole tables for it."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0009", "0008"


def upgrade() -> None:
    """Partial indexes over the few rows that are counted; of versions, by time."""
    for name, table, column, sqlite, postgresql in (
        ("ix_exchanges_failed", "exchanges", "status", "status >= 400", "status >= 400"),
        ("ix_exchanges_late", "exchanges", "late", "late = 1", "late"),
        ("ix_feedback_late", "feedback", "late", "late = 1", "late"),
        ("ix_trajectories_dropped", "trajectories", "dropped", "dropped <> ''", "dropped <> ''"),
    ):
        op.create_index(name, table, [column], sqlite_where=sa.text(sqlite), postgresql_where=sa.text(postgresql))
    for table, column in (
        ("verdicts", "created"), ("servings", "since"), ("servings", "version"), ("directives", "created"),
    ):  # fmt: skip
        op.create_index(f"ix_{table}_{column}", table, [column])
