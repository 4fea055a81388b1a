"""Who leads among several daemons (`actors.store.leases`)."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0008", "0007"


def upgrade() -> None:
    """One more table; an empty one means that nobody leads."""
    text = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    whole = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
    number = sa.Float().with_variant(sa.Double(), "postgresql")
    op.create_table(
        "leases",
        sa.Column("name", text, primary_key=True),
        sa.Column("holder", text, nullable=False),
        sa.Column("about", text, nullable=False),
        sa.Column("epoch", whole, nullable=False),
        sa.Column("since", number, nullable=False),
        sa.Column("expires", number, nullable=False),
    )
    op.create_index("uq_leases_epoch", "leases", ["name", "epoch"], unique=True)
