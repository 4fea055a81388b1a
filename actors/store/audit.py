"""The audit trail: every candidate, verdict, serving and directive once, in a chain of hashes.

`digest` is the sha256 of the record in its own table, `previous` the hash of the entry before, `hash` that of all other
columns. An entry is written in the transaction of its record; a change to either shows when the chain is walked. What
is cut off at the end, or written anew, shows against a head that was kept elsewhere: it is logged after each entry.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from sqlalchemy import Connection, exists, func, insert, select

from actors.messages import Message, encode
from actors.store.columns import among
from actors.store.tables import AuditTrail, Candidates, Directives, Record, Servings, Verdicts

KINDS: Mapping[str, type[Record]] = {
    "candidate": Candidates, "verdict": Verdicts, "serving": Servings, "directive": Directives,
}  # fmt: skip
"""What is audited, by its message's tag, and where its records are."""
START = "0" * 64
"""What the first entry follows."""
_PAGE = 1000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain."""

    sequence: int
    """1, 2, 3, ..."""
    at: float
    kind: str
    subject: str
    """Id of the record."""
    digest: str
    """sha256 of the record as its table keeps it."""
    previous: str
    hash: str

    def computed(self) -> str:
        """What `hash` must be."""
        content = msgspec.to_builtins(self)
        del content["hash"]
        return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


class Head(msgspec.Struct, frozen=True):
    """Where a chain ends; as text "SEQUENCE:HASH"."""

    sequence: int
    hash: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.hash}"


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk along the chain found."""

    head: Head
    """The last entry that is sound."""
    broken: int | None = None
    """Sequence of the first entry that is not as it was written; None if all are."""
    problem: str = ""
    """What is wrong there, or besides; empty if nothing is."""


def head(connection: Connection) -> Head:
    """The last entry."""
    newest = select(AuditTrail.sequence, AuditTrail.hash).order_by(AuditTrail.sequence.desc())
    found = connection.execute(newest.limit(1)).first()
    return Head(0, START) if found is None else Head(*found)


def append(connection: Connection, records: Iterable[Message], now: float) -> Head | None:
    """Chain an entry for each of `records` that is audited and has none yet; the new head, None if there were none.
    Writers take turns: two entries never follow the same one."""
    # Of two with one id the first, which is the one that was written.
    fresh = {(_kind(record), record.id): record for record in reversed(list(records)) if _kind(record) in KINDS}
    there = select(AuditTrail.kind, AuditTrail.subject).where(among(AuditTrail.subject, (key for _, key in fresh)))
    for kind, subject in connection.execute(there.where(AuditTrail.kind.in_(KINDS))) if fresh else ():
        fresh.pop((kind, subject), None)
    if not fresh:
        return None
    last = head(connection)
    rows: list[dict[str, Any]] = []
    for record in reversed(fresh.values()):
        entry = Entry(
            sequence=last.sequence + 1, at=float(now), kind=_kind(record), subject=record.id,
            digest=sha256(encode(record)).hexdigest(), previous=last.hash, hash="",
        )  # fmt: skip
        entry = msgspec.structs.replace(entry, hash=entry.computed())
        last = Head(entry.sequence, entry.hash)
        rows.append(msgspec.to_builtins(entry))
    connection.execute(insert(AuditTrail), rows)
    return last


def entries(connection: Connection) -> Iterator[Entry]:
    """The chain in order."""
    return (entry for entry, _ in _walk(connection))


def _walk(connection: Connection) -> Iterator[tuple[Entry, str | None]]:
    """The chain in order, each entry with the sha256 of its record; None if that is gone."""
    columns = (getattr(AuditTrail, name) for name in Entry.__struct_fields__)
    body = func.coalesce(*(table.body for table in KINDS.values())).label("body")
    wanted = select(*columns, body).select_from(AuditTrail).order_by(AuditTrail.sequence)
    for kind, table in KINDS.items():
        wanted = wanted.outerjoin(table, (AuditTrail.kind == kind) & (table.id == AuditTrail.subject))
    for one in connection.execute(wanted, execution_options={"yield_per": _PAGE}).mappings():
        yield msgspec.convert(one, Entry), one["body"] and sha256(one["body"]).hexdigest()


def verify(connection: Connection, anchor: Head | None = None) -> Findings:
    """Walk the chain from its beginning, and hold the records against it.

    Args:
        anchor: a head that was kept elsewhere: the chain must go through it.
    """
    last, anchor = Head(0, START), anchor or Head(0, START)
    for entry, digest in _walk(connection):
        number, record = last.sequence + 1, f"{entry.kind} {entry.subject}"
        rewritten = entry.sequence == anchor.sequence and entry.hash != anchor.hash
        problems = (
            (entry.sequence != number, f"entry {number} is missing, {entry.sequence} comes next"),
            (entry.previous != last.hash, f"it does not follow entry {last.sequence}: one of them was changed"),
            (entry.hash != entry.computed(), "it was changed: its hash is of other content"),
            (digest is None, f"its record is gone: {record}"),
            (digest != entry.digest, f"its record was changed: {record}"),
            (rewritten, f"it is not the entry of the anchor {anchor}: rewritten since"),
        )
        if problem := next((text for wrong, text in problems if wrong), ""):
            return Findings(head=last, broken=number, problem=problem)
        last = Head(number, entry.hash)
    if last.sequence < anchor.sequence:
        problem = f"the chain ends at {last.sequence} and the anchor is {anchor}: its end was cut off"
        return Findings(head=last, broken=last.sequence + 1, problem=problem)
    for kind, table in KINDS.items():
        entered = exists().where(AuditTrail.kind == kind, AuditTrail.subject == table.id)
        stray = connection.scalar(select(table.id).where(~entered).order_by(table.id).limit(1))
        if stray is not None:
            return Findings(head=last, problem=f"{kind} {stray} has no entry: put in beside the daemon")
    return Findings(head=last)


def _kind(record: Message) -> str:
    return str(record.__struct_config__.tag)
