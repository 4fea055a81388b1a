"""What users say of lessons: one voice a key, the last word counts; each word has its entry in the audit trail.

The words that go with it stand beside the audited record, so that they can be taken away without breaking the chain.
"""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, func, select, update

from actors.messages import Opinion, derived_id, encode
from actors.store import audit
from actors.store import tables as t
from actors.store.engine import chunks, insert_new, table_of
from actors.store.errors import TooManyOpinions

MAX_VOICES, MAX_WORDS = 10_000, 16
"""Keys that may speak of one lesson, and how often one of them may change its mind."""


class Voices(msgspec.Struct, frozen=True):
    """How many keys found a lesson useful, and how many not."""

    useful: int = 0
    useless: int = 0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The last word of one key."""

    key: str
    useful: bool
    reason: str
    created: float


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an opinion."""

    voices: Voices
    counted: bool
    """False if the key had said the same before."""
    head: audit.Head | None = None
    """Of the audit trail, if it grew."""


def say(connection: Connection, opinion: Opinion, reason: str, now: float) -> Heard:
    """Count `opinion`; its id is replaced by one that follows from lesson, key and number.

    Raises:
        TooManyOpinions: the lesson has as many voices as it may, or the key changed its mind too often.
    """
    row = t.OpinionRow
    mine = select(row.number, row.useful).where(row.experience_id == opinion.experience_id, row.key == opinion.key)
    last = connection.execute(mine.order_by(row.number.desc()).limit(1)).first()
    known = voices(connection, [opinion.experience_id]).get(opinion.experience_id, Voices())
    if last is not None and last.useful == opinion.useful:
        return Heard(voices=known, counted=False)
    if last is None and known.useful + known.useless >= MAX_VOICES:
        raise TooManyOpinions(f"{MAX_VOICES} keys have spoken of this lesson, which is as many as are counted")
    number = 0 if last is None else last.number + 1
    if number >= MAX_WORDS:
        raise TooManyOpinions(
            f"this key has changed its mind {MAX_WORDS - 1} times on this lesson; its last word stays"
        )
    opinion = msgspec.structs.replace(
        opinion, id=derived_id("opinion", opinion.experience_id, opinion.key, number), created=now
    )
    found = {
        "id": opinion.id, "experience_id": opinion.experience_id, "key": opinion.key, "number": number,
        "useful": opinion.useful, "reason": reason, "created": now, "body": encode(opinion),
    }  # fmt: skip
    insert_new(connection, table_of(row), [found])
    head = audit.append(connection, [opinion], now)
    return Heard(voices=voices(connection, [opinion.experience_id])[opinion.experience_id], counted=True, head=head)


def voices(connection: Connection, experience_ids: Sequence[str]) -> dict[str, Voices]:
    """By lesson, for those of `ids` that somebody spoke of."""
    row, found = t.OpinionRow, dict[str, Voices]()
    for part in chunks(list(experience_ids)):
        last = (
            select(row.experience_id, row.key, func.max(row.number).label("number"))
            .where(row.experience_id.in_(part))
            .group_by(row.experience_id, row.key)
            .subquery()
        )
        same = (row.experience_id == last.c.experience_id) & (row.key == last.c.key) & (row.number == last.c.number)
        counted = select(row.experience_id, row.useful, func.count()).join(last, same)
        for key, useful, number in connection.execute(counted.group_by(row.experience_id, row.useful)):
            known = found.get(key, Voices())
            change = {"useful": number} if useful else {"useless": number}
            found[key] = msgspec.structs.replace(known, **change)
    return found


def said(connection: Connection, experience_id: str, limit: int = 100) -> list[Said]:
    """The newest words on a lesson, one a key."""
    row = t.OpinionRow
    words = (
        select(row.key, row.useful, row.reason, row.created)
        .where(row.experience_id == experience_id)
        .order_by(row.created.desc(), row.number.desc())
        .limit(limit * MAX_WORDS)
    )
    found: dict[str, Said] = {}
    for key, useful, reason, created in connection.execute(words):
        found.setdefault(key, Said(key=key, useful=useful, reason=reason, created=created))
    return list(found.values())[:limit]


def delete_votes(connection: Connection, experience_ids: Sequence[str]) -> None:
    """Take the words away; that somebody spoke, and how, stays."""
    row = t.OpinionRow
    for part in chunks(list(experience_ids)):
        connection.execute(update(row).where(row.experience_id.in_(part)).values(reason=""))
