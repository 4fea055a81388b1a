"""What is remembered in words: revisions of lessons, and the vectors of their texts."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, delete, func, select, tuple_

from actors.messages import Experience
from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.reading import bodies
from actors.store.saving import insert


def revisions(connection: Connection) -> dict[str, int]:
    """The latest revision of each lesson, by id."""
    row = t.ExperienceRow
    found = connection.execute(select(row.id, func.max(row.revision)).group_by(row.id).order_by(row.id))
    return {key: int(revision) for key, revision in found}


def experiences_at(connection: Connection, wanted: Collection[tuple[str, int]]) -> list[Experience]:
    """The lessons with these (id, revision); what is not there is left out."""
    row, found = t.ExperienceRow, list[Experience]()
    for part in chunks(list(wanted), 250):
        these = tuple_(row.id, row.revision).in_(part)
        found += bodies(connection, select(row.body).where(these).order_by(row.id, row.revision), Experience)
    return found


def replace(connection: Connection, lessons: Sequence[Experience]) -> None:
    """Put `lessons` in the place of all their revisions, whose words, and the vectors of these, are gone then."""
    row = table_of(t.ExperienceRow)
    if lessons:
        connection.execute(delete(t.EmbeddingRow))
    for part in chunks([lesson.id for lesson in lessons]):
        connection.execute(delete(row).where(row.c.id.in_(part)))
    insert(connection, Experience, lessons)


def embeddings(connection: Connection, embedder: str, dimension: int, digests: Sequence[str]) -> dict[str, bytes]:
    """Vectors by the digest of their text; what is not there is left out."""
    row, found = t.EmbeddingRow, dict[str, bytes]()
    for part in chunks(digests):
        wanted = select(row.digest, row.vector).where(
            row.embedder == embedder, row.dimension == dimension, row.digest.in_(part)
        )
        found.update((key, vector) for key, vector in connection.execute(wanted))
    return found


def save_embeddings(connection: Connection, embedder: str, dimension: int, vectors: Mapping[str, bytes]) -> None:
    """Keep vectors; those that are there stay as they are."""
    rows = [
        {"embedder": embedder, "dimension": dimension, "digest": key, "vector": vector}
        for key, vector in vectors.items()
    ]
    insert_new(connection, table_of(t.EmbeddingRow), rows)


def prune_embeddings(connection: Connection, embedder: str, dimension: int, keep: Collection[str]) -> int:
    """Delete other spaces' vectors, and those of this one that are not in `keep`; how many."""
    row = t.EmbeddingRow
    here = (row.embedder == embedder) & (row.dimension == dimension)
    idle = [key for key in connection.scalars(select(row.digest).where(here)) if key not in keep]
    for part in chunks(idle):
        connection.execute(delete(row).where(here, row.digest.in_(part)))
    return len(idle) + connection.execute(delete(row).where(~here)).rowcount
