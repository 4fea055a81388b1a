"""PostgreSQL: text that is compared byte by byte, as SQLite does, and integers of 64 bits, which SQLite's have."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007", "0006"


def upgrade() -> None:
    """Change what is otherwise; nothing to do on SQLite. PostgreSQL builds the indexes anew."""
    if op.get_bind().dialect.name != "postgresql":
        return
    found = sa.inspect(op.get_bind())
    for table in sorted(set(found.get_table_names()) - {"alembic_version"}):
        for column in found.get_columns(table):
            kind = column["type"]
            if isinstance(kind, sa.String) and kind.collation != "C":
                op.alter_column(table, column["name"], type_=sa.String(collation="C"))
            elif isinstance(kind, sa.Integer) and not isinstance(kind, sa.BigInteger):
                op.alter_column(table, column["name"], type_=sa.BigInteger())
    op.execute("ALTER SEQUENCE outbox_sequence_seq AS BIGINT")
