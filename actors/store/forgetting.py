"""Forgetting in the store: lessons rewritten without their past, and which trajectories are gone."""

from collections.abc import Collection, Sequence

import msgspec
from sqlalchemy import Connection, delete, select

from actors.messages import Experience, encode
from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.ledger import put_state

KEY = "store.forgotten"
KEPT = 65_536
"""Ids of forgotten trajectories that are noted, the newest."""


def forget_experiences(connection: Connection, lessons: Sequence[Experience], sources: Collection[str]) -> None:
    """Put `lessons` in the place of all their revisions, and note that the trajectories `sources` are gone.

    Whoever holds trajectories in memory looks at the note; deleting their rows is somebody else's work.
    """
    row = table_of(t.ExperienceRow)
    for part in chunks([lesson.id for lesson in lessons]):
        connection.execute(delete(row).where(row.c.id.in_(part)))
    rows = [
        {
            "id": lesson.id, "revision": lesson.revision, "tenant": lesson.tenant, "state": lesson.state,
            "updated": lesson.updated, "body": encode(lesson),
        }
        for lesson in lessons
    ]  # fmt: skip
    insert_new(connection, row, rows)
    gone = list(dict.fromkeys([*forgotten(connection), *sorted(sources)]))[-KEPT:]
    put_state(connection, KEY, msgspec.msgpack.encode(gone))


def forgotten(connection: Connection) -> list[str]:
    """Trajectories that lessons must no longer be drawn from, the newest that were forgotten."""
    noted = connection.scalar(select(t.StateRow.value).where(t.StateRow.key == KEY))
    return msgspec.msgpack.decode(noted, type=list[str]) if noted else []
