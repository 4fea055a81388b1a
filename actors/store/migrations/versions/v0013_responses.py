"""Calls whose response id was seen before are kept: an engine may build it of what the agent sends with every call."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0013", "0012"


def upgrade() -> None:
    """The index by response id, without its promise that there is one call a name."""
    op.drop_index("uq_exchanges_response", "exchanges")
    named = sa.text("response_id <> ''")
    op.create_index(
        "ix_exchanges_response", "exchanges", ["tenant", "response_id"], sqlite_where=named, postgresql_where=named
    )
