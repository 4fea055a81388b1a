"""Outcomes in revisions, and what each came to: feedback comes late, and is corrected."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0012", "0011"
_TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Two tables, two columns; what is known of outcomes so far becomes their first revision."""
    op.add_column("feedback", sa.Column("effect", _TEXT, nullable=False, server_default=""))
    op.add_column("trajectories", sa.Column("revision", _WHOLE, nullable=False, server_default="0"))
    number = sa.Float().with_variant(sa.Double(), "postgresql")
    op.create_table(
        "outcomes",
        sa.Column("sequence", _WHOLE, primary_key=True, autoincrement=True, nullable=False),
        sa.Column("trajectory_id", _TEXT, nullable=False),
        sa.Column("revision", _WHOLE, nullable=False),
        sa.Column("outcome", number, nullable=False),
        sa.Column("rank", _TEXT, nullable=False),
        sa.Column("feedback_id", _TEXT, nullable=False),
        sa.Column("received", number, nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_outcomes", "outcomes", ["trajectory_id", "revision"], unique=True)
    op.create_index(
        "ix_outcomes_late", "outcomes", ["sequence"], sqlite_where=sa.text("late = 1"), postgresql_where=sa.text("late")
    )
    op.create_index(
        "ix_outcomes_corrections", "outcomes", ["sequence"], sqlite_where=sa.text("revision > 0"),
        postgresql_where=sa.text("revision > 0"),
    )  # fmt: skip
    op.create_table(
        "effects",
        sa.Column("trajectory_id", _TEXT, primary_key=True, nullable=False),
        sa.Column("revision", _WHOLE, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("channel", _TEXT, primary_key=True, nullable=False),
        sa.Column("effect", _TEXT, nullable=False),
        sa.Column("detail", _TEXT, nullable=False),
        sa.Column("order_id", _TEXT, nullable=False),
        sa.Column("version", _WHOLE, nullable=False),
        sa.Column("at", number, nullable=False),
    )
    op.create_index(
        "ix_effects_order", "effects", ["order_id"], sqlite_where=sa.text("order_id <> ''"),
        postgresql_where=sa.text("order_id <> ''"),
    )  # fmt: skip
    op.execute(
        "INSERT INTO outcomes (trajectory_id, revision, outcome, rank, feedback_id, received, late) "
        "SELECT id, 0, outcome, 'reported', '', ended, 1 = 0 FROM trajectories "
        "WHERE source = 'production' AND side_of = '' AND outcome IS NOT NULL"
    )
    op.execute(
        "INSERT INTO effects (trajectory_id, revision, channel, effect, detail, order_id, version, at) "
        "SELECT id, 0, 'training', 'none', dropped, '', -1, ended FROM trajectories "
        "WHERE source = 'production' AND side_of = '' AND outcome IS NOT NULL AND dropped <> '' AND batch_id = ''"
    )
    # An order that nobody answered, and what an update could not learn from, are not told apart here any more.
    op.execute(
        "INSERT INTO effects (trajectory_id, revision, channel, effect, detail, order_id, version, at) "
        "SELECT r.id, 0, 'training', CASE WHEN MAX(c.version) IS NULL THEN 'ordered' ELSE 'trained' END, '', "
        "r.batch_id, COALESCE(MAX(c.version), -1), MAX(r.ended) FROM trajectories r "
        "LEFT JOIN candidate_batches l ON l.batch_id = r.batch_id LEFT JOIN candidates c ON c.id = l.candidate_id "
        "WHERE r.source = 'production' AND r.side_of = '' AND r.outcome IS NOT NULL AND r.batch_id <> '' "
        "GROUP BY r.id, r.batch_id"
    )
