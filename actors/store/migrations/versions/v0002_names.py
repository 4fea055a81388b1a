"""Calls by their callers' own ids, side calls, and feedback that comes before its trajectory or after its credit."""

import sqlalchemy as sa
from alembic import op

from actors.messages import Feedback, decode

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    """Add them, and note what the feedback that is there waits for."""
    op.add_column("exchanges", sa.Column("custom_id", sa.String(), nullable=False, server_default=""))
    named = sa.text("custom_id <> ''")
    op.create_index(
        "ix_exchanges_custom", "exchanges", ["tenant", "custom_id"], sqlite_where=named, postgresql_where=named
    )
    op.add_column("feedback", sa.Column("late", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("trajectories", sa.Column("side_of", sa.String(), nullable=False, server_default=""))
    waiting = op.create_table(
        "waiting_names",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("tenant", sa.String(), primary_key=True),
        sa.Column("feedback_id", sa.String(), primary_key=True),
    )
    op.create_index("ix_waiting_names_feedback_id", "waiting_names", ["feedback_id"])
    bodies = op.get_bind().execute(sa.text("SELECT body FROM feedback WHERE joined = ''"))
    said = [decode(bytes(body)) for (body,) in bodies]
    rows = {
        (kind + value, one.tenant, one.id)
        for one in said
        if isinstance(one, Feedback)
        for kind, value in (
            ("x", one.exchange_id), ("r", one.response_id), ("u", one.custom_id), ("t", one.trajectory_id),
        )
        if value
    }  # fmt: skip
    op.bulk_insert(
        waiting, [{"name": name, "tenant": tenant, "feedback_id": key} for name, tenant, key in sorted(rows)]
    )
