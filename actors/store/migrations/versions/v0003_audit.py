"""The audit trail, with an entry for every candidate, verdict, serving and directive that is there."""

from hashlib import sha256
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import context, op

from actors.store.audit import START, Entry

revision, down_revision = "0003", "0002"
_RECORDS = (("candidate", "candidates", "created"), ("verdict", "verdicts", "created"),
            ("serving", "servings", "since"), ("directive", "directives", "created"))  # fmt: skip


def upgrade() -> None:
    """Add it."""
    audit = op.create_table(
        "audit",
        sa.Column("sequence", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float(), nullable=False),
        *(
            sa.Column(name, sa.String(), nullable=False)
            for name in ("kind", "subject", "digest", "previous", "hash")
        ),
    )  # fmt: skip
    op.create_index("uq_audit_subject", "audit", ["kind", "subject"], unique=True)
    found: list[tuple[float, str, str, bytes]] = []
    for kind, table, time in _RECORDS:
        rows = op.get_bind().execute(sa.text(f"SELECT {time}, id, body FROM {table}"))  # noqa: S608  names from here
        found += [(at, kind, key, bytes(body)) for at, key, body in rows]
    now, previous, entries = float(context.config.attributes["now"]), START, list[dict[str, Any]]()
    for sequence, (_, kind, subject, body) in enumerate(sorted(found), 1):
        entry = Entry(
            sequence=sequence, at=now, kind=kind, subject=subject, digest=sha256(body).hexdigest(), previous=previous,
            hash="",
        )  # fmt: skip
        previous = entry.computed()
        entries.append(msgspec.to_builtins(entry) | {"hash": previous})
    op.bulk_insert(audit, entries)
