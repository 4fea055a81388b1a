"""What is remembered in words: lessons with all their revisions, and the vectors of their texts."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec
from sqlalchemy import Connection, delete, func, select

from actors.messages import Experience
from actors.store.columns import among
from actors.store.engine import insert_new
from actors.store.runs import bodies
from actors.store.saving import insert, save
from actors.store.tables import Embeddings, Lessons


def experiences(connection: Connection, state: str | None = None) -> list[Experience]:
    """The latest revision of each lesson, those in `state` if it is given, by last change, newest first."""
    latest = select(Lessons.id, func.max(Lessons.revision).label("revision")).group_by(Lessons.id)
    last = latest.subquery()
    wanted = select(Lessons.body).join(last, (Lessons.id == last.c.id) & (Lessons.revision == last.c.revision))
    if state is not None:
        wanted = wanted.where(Lessons.state == state)
    return bodies(connection, wanted.order_by(Lessons.updated.desc(), Lessons.id), Experience)


def revisions_of(connection: Connection, experience_id: str) -> list[Experience]:
    """All that a lesson was, newest first; empty if there is none."""
    wanted = select(Lessons.body).where(Lessons.id == experience_id)
    return bodies(connection, wanted.order_by(Lessons.revision.desc()), Experience)


def revise(
    connection: Connection, now: float, experience_id: str, change: Callable[[Experience], Experience]
) -> Experience | None:
    """Write the next revision of a lesson, made of the latest by `change`; None if there is no such lesson."""
    latest = next(iter(revisions_of(connection, experience_id)), None)
    if latest is None:
        return None
    revised = msgspec.structs.replace(change(latest), revision=latest.revision + 1, updated=now)
    save(connection, [revised], now)
    return revised


def add_experiences(connection: Connection, now: float, lessons: Sequence[Experience]) -> set[str]:
    """Write those that no lesson has the id of yet, all or none; ids of the others."""
    wanted = select(Lessons.id).where(among(Lessons.id, (lesson.id for lesson in lessons)))
    there = set(connection.scalars(wanted))
    save(connection, [lesson for lesson in lessons if lesson.id not in there], now)
    return there


def replace(connection: Connection, lessons: Sequence[Experience]) -> None:
    """Put `lessons` in the place of all their revisions, whose words, and the vectors of these, are gone then."""
    if lessons:
        connection.execute(delete(Embeddings))
    connection.execute(delete(Lessons).where(among(Lessons.id, (lesson.id for lesson in lessons))))
    insert(connection, Lessons, lessons)


def embeddings(connection: Connection, embedder: str, dimension: int, digests: Sequence[str]) -> dict[str, bytes]:
    """Vectors by the digest of their text; what is not there is left out."""
    wanted = select(Embeddings.digest, Embeddings.vector).where(
        Embeddings.embedder == embedder, Embeddings.dimension == dimension, among(Embeddings.digest, digests)
    )
    return {key: vector for key, vector in connection.execute(wanted)}


def save_embeddings(connection: Connection, embedder: str, dimension: int, vectors: Mapping[str, bytes]) -> None:
    """Keep vectors; those that are there stay as they are."""
    space = {"embedder": embedder, "dimension": dimension}
    insert_new(connection, Embeddings, [{**space, "digest": key, "vector": vector} for key, vector in vectors.items()])


def prune_embeddings(connection: Connection, embedder: str, dimension: int, keep: Collection[str]) -> int:
    """Delete other spaces' vectors, and those of this one that are not in `keep`; how many."""
    here = (Embeddings.embedder == embedder) & (Embeddings.dimension == dimension)
    return connection.execute(delete(Embeddings).where(~(here & among(Embeddings.digest, keep)))).rowcount
