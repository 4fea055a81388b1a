"""Looking through trajectories page by page, newest first, for people; what the dashboard's list is made of."""

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, and_, or_, select

from actors.messages import Attributed, Label, Trajectory, decode
from actors.store import tables as t

SOURCES = ("production", "sandbox", "probe")
MOST = 200
"""Trajectories of a page."""
SCANNED = 20_000
"""Rows that are looked at for one page: a rare word must not read years. The next page goes on from there."""

Outcome = Literal["", "success", "failure", "unknown"]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which trajectories, and from where on."""

    source: str = ""
    outcome: Outcome = ""
    tenant: str = ""
    words: str = ""
    """In its goal, or the beginning of its id."""
    version: int | None = None
    """Of the weights that took part."""
    after: tuple[float, str] | None = None
    """End and id of the row before the first one wanted."""
    limit: int = 25


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A trajectory as a line of a list."""

    id: str
    source: str
    tenant: str
    goal: str
    outcome: float | None
    started: float
    ended: float
    min_version: int
    max_version: int
    cluster: str
    closed_by: str
    trainable: bool
    why_not: str
    batch_id: str
    dropped: str
    side_of: str
    guided: bool
    steps: int
    labels: tuple[Label, ...]
    """One a step; none yet where it has no credit."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories, newest first; `after` is where the next page begins, None at the end."""

    trajectories: list[Run]
    after: tuple[float, str] | None


def browse(connection: Connection, wanted: Wanted) -> Page:
    """A page of what is `wanted`. Fewer than asked for, and yet more behind it, where little among many rows fits."""
    sources = [source for source in SOURCES if wanted.source in ("", source)]
    rows = heapq.merge(*(_rows(connection, source, wanted.after) for source in sources), key=_place)
    found: list[Any] = []
    last: Any = None
    scanned = 0
    for row in islice(rows, SCANNED):
        scanned, last = scanned + 1, row
        if _fits(row, wanted):
            found.append(row)
            if len(found) == wanted.limit:
                break
    more = len(found) == wanted.limit or scanned == SCANNED
    return Page(
        trajectories=[_run(row, body) for row, body in _with_bodies(connection, found)],
        after=(last.ended, last.id) if last is not None and more else None,
    )


def _rows(connection: Connection, source: str, after: tuple[float, str] | None) -> Iterator[Any]:
    # One source at a time is what the index on (source, ended) can give in order.
    row = t.TrajectoryRow
    wanted = select(
        row.id, row.source, row.tenant, row.goal, row.outcome, row.started, row.ended, row.min_version, row.max_version,
        row.cluster, row.closed_by, row.trainable, row.why_not, row.batch_id, row.dropped, row.side_of,
    ).where(row.source == source)  # fmt: skip
    if after is not None:
        ended, key = after
        wanted = wanted.where(or_(row.ended < ended, and_(row.ended == ended, row.id > key)))
    wanted = wanted.order_by(row.ended.desc(), row.id).limit(SCANNED)
    return iter(connection.execution_options(yield_per=500).execute(wanted))


def _place(row: Any) -> tuple[float, str]:
    return -row.ended, row.id


def _fits(row: Any, wanted: Wanted) -> bool:
    match wanted.outcome:
        case "unknown":
            fits = row.outcome is None
        case "success":
            fits = row.outcome is not None and row.outcome >= 0.5
        case "failure":
            fits = row.outcome is not None and row.outcome < 0.5
        case _:
            fits = True
    words = wanted.words.casefold()
    return (
        fits
        and (not wanted.tenant or row.tenant == wanted.tenant)
        and (not words or words in row.goal.casefold() or row.id.startswith(words))
        and (wanted.version is None or row.min_version <= wanted.version <= row.max_version)
    )


def _with_bodies(connection: Connection, rows: Iterable[Any]) -> Iterator[tuple[Any, Attributed | Trajectory | None]]:
    row = t.TrajectoryRow
    for each in rows:
        body = connection.scalar(select(row.body).where(row.id == each.id))
        message = None if body is None else decode(body)
        yield each, message if isinstance(message, Attributed | Trajectory) else None


def _run(row: Any, message: Attributed | Trajectory | None) -> Run:
    attributed = message if isinstance(message, Attributed) else None
    run = attributed.trajectory if attributed is not None else message
    found = () if attributed is None else attributed.attribution.labels
    return Run(
        **row._asdict(),
        guided=isinstance(run, Trajectory) and bool(run.experience_ids),
        steps=len(run.steps) if isinstance(run, Trajectory) else 0,
        labels=tuple(label.label for label in found),
    )
