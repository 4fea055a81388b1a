"""Is the database sound: the file itself, and what is in it.

pages (SQLite)  ->  bodies decode, their signatures are good  ->  audit trail
"""

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Directive, MessageError, Verdict, decode
from actors.store import schema
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.engine import sqlite_file
from actors.store.errors import StoreUnavailable
from actors.store.tables import Base, Judgements, Record, Tasks
from actors.store.tasks import task_state

Report = Callable[[str], None]
_NAMED = 5
"""Findings of a kind that are listed; the others are counted."""
_RESTORE = "restore the newest backup (evolved db restore), or keep the file and start with a new one"
_UNSIGNED = "nothing goes by it; `evolved why VERSION` tells the rest"
_UNREADABLE = (
    "restore a backup; without one, take them out with `evolved forget --trajectory` where they are trajectories' parts"
)
_BROKEN_TRAIL = (
    "`evolved audit verify` with a head that was kept elsewhere tells how far it can be believed; restore a backup "
    "from before"
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    what: str
    remedy: str
    number: int = 1
    """How many of its kind."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found."""

    schema: str
    rows: dict[str, int]
    """By table."""
    head: str = ""
    """Where the audit trail ends."""
    signatures: int = 0
    """Verdicts and versions whose signatures were found good."""
    findings: tuple[Finding, ...] = ()


def pages(url: str) -> list[Finding]:
    """What SQLite says of its own file; nothing of other databases."""
    path = sqlite_file(url)
    if path is None:
        return []
    try:
        said = ask(url, lambda one: one.exec_driver_sql(f"PRAGMA integrity_check({_NAMED})").scalars().all())
    except StoreUnavailable as error:
        said = [str(error)]
    return [Finding(what=f"{path}: {_line(one)}", remedy=_RESTORE) for one in said if one != "ok"]


def check(connection: Connection, problem: Callable[[Verdict | Directive], str] | None, say: Report) -> Checked:
    """Everything but the pages.

    Args:
        problem: what is wrong with a signature; that none was taken off is what the audit trail says.
    """
    rows: dict[str, int] = {}
    for table in Base.metadata.sorted_tables:
        rows[table.name] = connection.scalar(select(func.count()).select_from(table)) or 0
    findings: list[Finding] = []
    good = 0
    for table in Record.__subclasses__():
        if table is Judgements:
            continue  # a judge's own words
        read = task_state if table is Tasks else decode
        name, unreadable = table.__tablename__, list[str]()
        say(f"{name}: {rows[name]:,} rows")
        for key, body in connection.execute(select(table.id, table.body), execution_options={"yield_per": 500}):
            try:
                record = read(body)
            except (MessageError, msgspec.DecodeError) as error:
                unreadable.append(f"{key} ({_line(error)})")
                continue
            if problem is None or not (isinstance(record, Verdict | Directive) and record.signature):
                continue
            if wrong := problem(record):
                findings.append(Finding(what=f"{key}: {wrong}", remedy=_UNSIGNED))
            else:
                good += 1
        if unreadable:
            named = ", ".join(unreadable[:_NAMED]) + (", ..." if len(unreadable) > _NAMED else "")
            what = f"{name}: bodies that cannot be read: {named}"
            findings.append(Finding(what=what, remedy=_UNREADABLE, number=len(unreadable)))
    say("audit trail")
    trail = verify(connection)
    if trail.problem:
        at = "" if trail.broken is None else f"entry {trail.broken}: "
        findings.append(Finding(what=f"audit trail: {at}{trail.problem}", remedy=_BROKEN_TRAIL))
    return Checked(schema=schema.wanted(), rows=rows, head=str(trail.head), signatures=good, findings=tuple(findings))


def _line(text: object) -> str:
    return " ".join(str(text).split())[:300]
