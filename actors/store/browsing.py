"""Looking through trajectories page by page, newest first, for people; what the dashboard's list is made of."""

from collections.abc import Iterator
from itertools import islice
from math import inf, nextafter
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, or_, select

from actors.messages import Attributed, Label, Trajectory
from actors.store import reading
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
    row, where = t.TrajectoryRow, list[ColumnElement[bool]]()
    if wanted.source:
        where.append(row.source == wanted.source)
    if wanted.after is not None:
        ended, key = wanted.after
        where.append(or_(row.ended < ended, and_(row.ended == ended, row.id > key)))
    floor = connection.scalar(select(row.ended).where(*where).order_by(row.ended.desc()).offset(SCANNED).limit(1))
    if floor is not None:
        where.append(row.ended >= floor)
    rows = connection.execute(
        select(
            row.id, row.source, row.tenant, row.goal, row.outcome, row.started, row.ended, row.min_version,
            row.max_version, row.cluster, row.closed_by, row.trainable, row.why_not, row.batch_id, row.dropped,
            row.side_of,
        ).where(*where, *_filters(wanted)).order_by(row.ended.desc(), row.id),
        execution_options={"yield_per": 500},
    )  # fmt: skip
    # In Python, for databases fold the case of few languages.
    words = wanted.words.casefold()
    fit = (row for row in rows if words in row.goal.casefold() or row.id.startswith(words))
    found: list[Any] = list(islice(fit, wanted.limit))
    after = None if floor is None else (nextafter(floor, -inf), "")
    if len(found) == wanted.limit:
        after = found[-1].ended, found[-1].id
    return Page(trajectories=[_run(connection, row) for row in found], after=after)


def _filters(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    row = t.TrajectoryRow
    if wanted.outcome == "unknown":
        yield row.outcome.is_(None)
    elif wanted.outcome:
        yield row.outcome >= 0.5 if wanted.outcome == "success" else row.outcome < 0.5
    if wanted.tenant:
        yield row.tenant == wanted.tenant
    if wanted.version is not None:
        yield row.min_version <= wanted.version
        yield row.max_version >= wanted.version


def _run(connection: Connection, row: Any) -> Run:
    message = reading.trajectory(connection, row.id)
    attributed = message if isinstance(message, Attributed) else None
    run = attributed.trajectory if attributed is not None else message
    found = () if attributed is None else attributed.attribution.labels
    return Run(
        **row._asdict(),
        guided=isinstance(run, Trajectory) and bool(run.experience_ids),
        steps=len(run.steps) if isinstance(run, Trajectory) else 0,
        labels=tuple(label.label for label in found),
    )
