"""The newest runs of a version that have an outcome: one run in twenty has one, and the version may be long ago."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0010", "0009"


def upgrade() -> None:
    """A partial index over production runs by version and time."""
    op.create_index(
        "ix_trajectories_judged", "trajectories", ["source", "max_version", "ended"],
        sqlite_where=sa.text("outcome IS NOT NULL"), postgresql_where=sa.text("outcome IS NOT NULL"),
    )  # fmt: skip
