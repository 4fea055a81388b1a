"""Whose a run is, beside its body: the gate takes the newest of every party and not of the loudest.

Rows that are there keep an empty caller and count as their tenant's, until they have aged out of what is looked at.
"""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0011", "0010"


def upgrade() -> None:
    """The column, and an index with all that evidence is chosen by."""
    text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.add_column("trajectories", sa.Column("caller", text, server_default="", nullable=False))
    op.create_index(
        "ix_trajectories_exam", "trajectories",
        ["source", "attributed", "ended", "id", "tenant", "caller", "outcome"],
    )  # fmt: skip
