"""Lessons as JSONL: a header that says how many there are and their digest, then a lesson a line.

    {"format": "evolved-experience", "schema": 1, "count": 2, "sha256": "...", "exported": 1767225600.0}
    {"when_to_use": "...", "content": "...", "kind": "practice", ...}

`read` takes all of a text or nothing. What another installation measured or counted is a claim: imported lessons begin
as candidates, or in quarantine, with fresh counters and without independent sources.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from actors.messages import Experience, ExperienceKind, ExperienceState, derived_id
from daemon.errors import OrderRefused

FORMAT, SCHEMA = "evolved-experience", 1
MAX_LESSONS = 10_000
MAX_WHEN, MAX_CONTENT, MAX_DETAIL = 2_000, 16_000, 64_000
"""Characters; `detail` as JSON."""
IMPORTED = "import"
"""Origin of an imported lesson."""
_MAX_SOURCES = 1_000


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    format: str
    schema: int
    count: int
    sha256: str
    """Of all bytes behind the header's line."""
    exported: float = 0.0
    """Unix seconds."""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lesson."""

    when_to_use: str
    content: str
    kind: ExperienceKind = "practice"
    tenant: str = "default"
    origin: str = ""
    sources: tuple[str, ...] = ()
    independent: int = 0
    detail: dict[str, Any] = {}
    state: ExperienceState = "candidate"
    reason: str = ""
    guided: tuple[int, int] = (0, 0)
    unguided: tuple[int, int] = (0, 0)
    updated: float = 0.0


def write(lessons: Sequence[Experience], now: float) -> str:
    """`lessons` as JSONL."""
    body = b"".join(msgspec.json.encode(_line(lesson)) + b"\n" for lesson in lessons)
    header = Header(
        format=FORMAT, schema=SCHEMA, count=len(lessons), sha256=hashlib.sha256(body).hexdigest(), exported=now
    )
    return (msgspec.json.encode(header) + b"\n" + body).decode()


def _line(lesson: Experience) -> Line:
    return Line(**{name: getattr(lesson, name) for name in Line.__struct_fields__})


def read(text: str, *, tenants: Mapping[str, str], quarantine: bool = False, now: float = 0.0) -> list[Experience]:
    """The lessons in `text`, as they begin here.

    Args:
        tenants: whose they are here, by whose they were there; "*" stands for all others. A tenant in none keeps its
            name.
        quarantine: all begin in quarantine, not only those that were in it.

    Raises:
        OrderRefused: a line that cannot be used, by number, or a file that is not whole. Nothing is taken then.
    """
    data = text.encode("utf-8", "surrogatepass").removeprefix(b"\xef\xbb\xbf")
    first, _, body = data.partition(b"\n")
    header = _header(first)
    rows = body.split(b"\n")
    if rows[-1] == b"":
        rows.pop()
    if header.count > MAX_LESSONS:
        raise OrderRefused(413, f"line 1: {header.count:,} lessons; at most {MAX_LESSONS:,} in one import")
    seen: dict[str, int] = {}
    lessons: list[Experience] = []
    for number, row in enumerate(rows, start=2):
        lesson = _lesson(row, number, tenants, quarantine, now)
        if lesson.id in seen:
            raise OrderRefused(422, f"line {number}: the same lesson as line {seen[lesson.id]}")
        seen[lesson.id] = number
        lessons.append(lesson)
    if len(lessons) != header.count:
        raise OrderRefused(
            422, f"line 1 says {header.count} lessons and there are {len(lessons)}: the file is not whole"
        )
    if hashlib.sha256(body).hexdigest() != header.sha256:
        raise OrderRefused(
            422, "the digest in line 1 is not that of the lessons: the file was changed since its export"
        )
    return lessons


def _header(first: bytes) -> Header:
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OrderRefused(
            422, f"line 1: no header of an export ({error}); `evolved experience export` writes one"
        ) from error
    if header.format != FORMAT or header.schema > SCHEMA:
        raise OrderRefused(
            422,
            f"line 1: format {header.format!r}, schema {header.schema}; this evolved reads {FORMAT!r} up to {SCHEMA}",
        )
    return header


def _lesson(row: bytes, number: int, tenants: Mapping[str, str], quarantine: bool, now: float) -> Experience:
    try:
        line = msgspec.json.decode(row, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OrderRefused(422, f"line {number}: {error}") from error
    tenant = tenants.get(line.tenant, tenants.get("*", line.tenant))
    try:
        require_valid(tenant, line.when_to_use, line.content, line.detail)
    except OrderRefused as error:
        raise OrderRefused(error.status, f"line {number}: {error}") from error
    if len(line.sources) > _MAX_SOURCES:
        raise OrderRefused(422, f"line {number}: sources has {len(line.sources)} entries, at most {_MAX_SOURCES}")
    held = quarantine or line.state == "quarantined"
    return Experience(
        id=lesson_id(tenant, line.when_to_use, line.content),
        tenant=tenant,
        when_to_use=line.when_to_use,
        content=line.content,
        kind=line.kind,
        origin=IMPORTED,
        sources=line.sources,
        detail=line.detail,
        state="quarantined" if held else "candidate",
        reason=f"imported, {line.state} where it came from",
        updated=now,
    )


def lesson_id(tenant: str, when_to_use: str, content: str) -> str:
    """The record id of a lesson: the same words for the same tenant are the same lesson, whoever drew it."""
    return derived_id("lesson", tenant, when_to_use, content)


def require_valid(tenant: str, when_to_use: str, content: str, detail: Mapping[str, Any]) -> None:
    """
    Raises:
        OrderRefused: names the field that is empty, too long or cannot be kept.
    """
    for name, value, most in (
        ("tenant", tenant, 256), ("when_to_use", when_to_use, MAX_WHEN), ("content", content, MAX_CONTENT),
    ):  # fmt: skip
        if not value.strip():
            raise OrderRefused(422, f"{name} is empty")
        if len(value) > most:
            raise OrderRefused(422, f"{name} has {len(value):,} characters, at most {most:,}")
        if "\x00" in value:
            raise OrderRefused(422, f"{name} has a NUL in it")
    try:
        msgspec.msgpack.encode(detail)  # as it is kept
    except OverflowError as error:
        raise OrderRefused(422, "detail has an integer beyond 64 bits; write it as text") from error
    if len(msgspec.json.encode(detail)) > MAX_DETAIL:
        raise OrderRefused(422, f"detail has more than {MAX_DETAIL:,} bytes as JSON")
