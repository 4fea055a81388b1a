"""Opinions on lessons, tombstones, and two caches: what judges said, and the vectors of lessons.

Schema 3 got the caches on two branches: a database of it may have either already.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"


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
    op.create_table(
        "opinions",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("experience_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("useful", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_index("uq_opinions", "opinions", ["experience_id", "key", "number"], unique=True)
    op.create_table(
        "forgotten",
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("before", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
    )
    op.create_index("ix_forgotten_at", "forgotten", ["at"])
