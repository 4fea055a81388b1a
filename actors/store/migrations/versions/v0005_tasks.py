"""A pool of tasks: how each fared, and what it was made from."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0005", "0004"
_COUNTS = ("tried", "solved", "lost", "agreed")
_TIMES = ("last", "again")


def upgrade() -> None:
    """Add it."""
    op.add_column("tasks", sa.Column("state", sa.String(), nullable=False, server_default="offered"))
    op.add_column("tasks", sa.Column("reason", sa.String(), nullable=False, server_default=""))
    for name in _COUNTS:
        op.add_column("tasks", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    for name in _TIMES:
        op.add_column("tasks", sa.Column(name, sa.Float(), nullable=False, server_default="0"))
    op.create_index("ix_tasks_state", "tasks", ["state", "last"])
    op.create_table(
        "task_sources",
        sa.Column("task_id", sa.String(), primary_key=True),
        sa.Column("source", sa.String(), primary_key=True),
    )
    op.create_index("ix_task_sources_source", "task_sources", ["source"])
