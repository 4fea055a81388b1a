"""What databases of schemas 4 and 5 may lack: those numbers stood for more than one shape.

Schema 4 was first written without one or both of the caches, schema 5 without the estimates of tasks.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0006", "0005"


def upgrade() -> None:
    """Add what is not there."""
    op.create_table(
        "judgements",
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("used", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_judgements_tenant", "judgements", ["tenant"], if_not_exists=True)
    op.create_index("ix_judgements_used", "judgements", ["used"], if_not_exists=True)
    op.create_table(
        "embeddings",
        sa.Column("embedder", sa.String(), primary_key=True),
        sa.Column("dimension", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        if_not_exists=True,
    )
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("tasks")}
    for name in ("successes", "failures"):
        if name not in there:
            op.add_column("tasks", sa.Column(name, sa.Float(), nullable=False, server_default="0"))
