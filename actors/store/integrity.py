"""Is the database sound: the file itself, and what is in it.

pages (SQLite)  ->  bodies decode  ->  audit trail  ->  signatures
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec
from sqlalchemy import Connection, func, select, tuple_

from actors.messages import Directive, MessageError, Verdict, decode
from actors.store import schema
from actors.store import tables as t
from actors.store.audit import verify
from actors.store.engine import sqlite_file, table_of
from actors.store.errors import StoreDamaged

Report = Callable[[str], None]
_PAGE = 500
_NAMED = 5
"""Findings of a kind that are listed; the others are counted."""
_RESTORE = "restore the newest backup (evolved db restore), or keep the file and start with a new one"
_BODIES: tuple[type[t.Base], ...] = (
    t.ExchangeRow, t.FeedbackRow, t.TrajectoryRow, t.ExperienceRow, t.TaskRow, t.BatchRow, t.CandidateRow,
    t.VerdictRow, t.ServingRow, t.DirectiveRow,
)  # fmt: skip


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


def quick(url: str) -> None:
    """Look at an SQLite file before it is used; one that is not there yet is sound. Of a damaged page SQLite tells when
    it reads it.
    """
    path = sqlite_file(url)
    if path is None or not path.is_file() or not path.stat().st_size:
        return
    try:
        with closing(_read_only(path)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return  # locked, or of another owner: opening it says so
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"{path}: {error}; {_RESTORE}") from error


def pages(url: str) -> list[Finding]:
    """What SQLite says of its own file; nothing of other databases."""
    path = sqlite_file(url)
    if path is None:
        return []
    try:
        with closing(_read_only(path)) as connection:
            said = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_NAMED})")]
    except sqlite3.DatabaseError as error:
        said = [str(error)]
    return [] if said == ["ok"] else [Finding(what=f"{path}: {_line(one)}", remedy=_RESTORE) for one in said]


def check(connection: Connection, problem: Callable[[Verdict | Directive], str] | None, say: Report) -> Checked:
    """Everything but the pages."""
    rows: dict[str, int] = {}
    for table in t.Base.metadata.sorted_tables:
        rows[table.name] = connection.scalar(select(func.count()).select_from(table)) or 0
    findings: list[Finding] = []
    for row in _BODIES:
        name = table_of(row).name
        say(f"{name}: {rows[name]:,} rows")
        findings += _bodies(connection, row)
    say("audit trail")
    trail = verify(connection)
    if trail.problem:
        at = "" if trail.broken is None else f"entry {trail.broken}: "
        findings.append(
            Finding(
                what=f"audit trail: {at}{trail.problem}",
                remedy="`evolved audit verify` with a head that was kept elsewhere tells how far it can be believed; "
                "restore a backup from before",
            )
        )
    good = 0
    for record in _signed(connection) if problem is not None else ():
        wrong = problem(record) if problem is not None else ""
        good += not wrong
        if wrong:
            findings.append(
                Finding(what=f"{record.id}: {wrong}", remedy="nothing goes by it; `evolved why VERSION` tells the rest")
            )
    return Checked(schema=schema.wanted(), rows=rows, head=str(trail.head), signatures=good, findings=tuple(findings))


def _read_only(path: Path) -> sqlite3.Connection:
    name = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(name, uri=True, timeout=20.0)


def _line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def _bodies(connection: Connection, row: type[t.Base]) -> Iterator[Finding]:
    """Rows whose body is no message."""
    unreadable: list[str] = []
    for key, body in (one for page in _pages(connection, row) for one in page):
        try:
            decode(body)
        except MessageError as error:
            unreadable.append(f"{key} ({_line(error)})")
    if unreadable:
        yield Finding(
            what=f"{table_of(row).name}: bodies that cannot be read: {_some(unreadable)}", number=len(unreadable),
            remedy="restore a backup; without one, take them out with `evolved forget --trajectory` where they are "
            "trajectories' parts",
        )  # fmt: skip


def _pages(connection: Connection, row: type[t.Base]) -> Iterator[list[tuple[str, bytes]]]:
    table = table_of(row)
    keys = [table.c.id, *([table.c.revision] if "revision" in table.c else [])]
    last: tuple[object, ...] | None = None
    while True:
        wanted = select(*keys, table.c.body).order_by(*keys).limit(_PAGE)
        if last is not None:
            wanted = wanted.where(tuple_(*keys) > last)
        page = connection.execute(wanted).all()
        if not page:
            return
        yield [(row[0], row[-1]) for row in page]
        last = tuple(page[-1][:-1])


def _signed(connection: Connection) -> Iterator[Verdict | Directive]:
    """Those that bear a signature; that none was taken off is what the audit trail says."""
    for row in (t.VerdictRow, t.DirectiveRow):
        for page in _pages(connection, row):
            for _, body in page:
                try:
                    record = decode(body)
                except MessageError:
                    continue  # a finding of its own
                if isinstance(record, Verdict | Directive) and record.signature:
                    yield record


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
