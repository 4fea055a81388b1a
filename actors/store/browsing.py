"""Looking through trajectories page by page, newest first, for people; what the dashboard's list is made of."""

from collections.abc import Iterator
from itertools import islice
from math import inf, nextafter
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, Connection, select

from actors.messages import Attributed
from actors.store.runs import trajectory
from actors.store.tables import Runs

SOURCES = ("production", "sandbox", "probe")
MOST = 200
"""Trajectories of a page."""
SCANNED = 20_000
"""Rows that are looked at for one page: a rare word must not read years. The next page goes on from there."""
_SHOWN = (
    Runs.id, Runs.source, Runs.tenant, Runs.goal, Runs.outcome, Runs.started, Runs.ended, Runs.min_version,
    Runs.max_version, Runs.cluster, Runs.closed_by, Runs.trainable, Runs.why_not, Runs.batch_id, Runs.came,
)  # fmt: skip

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


def browse(connection: Connection, wanted: Wanted) -> tuple[list[dict[str, Any]], tuple[float, str] | None]:
    """A page of what is `wanted`, newest first, and where the next one begins; None at the end. Fewer than asked for,
    and yet more behind it, where little among many rows fits.

    Of each run its columns, how many `steps` it has, whether it was `guided` by lessons, and its steps' `labels`, if it
    has credit.
    """
    where: list[ColumnElement[bool]] = []
    if wanted.source:
        where.append(Runs.source == wanted.source)
    if wanted.after is not None:
        ended, key = wanted.after
        where.append((Runs.ended < ended) | ((Runs.ended == ended) & (Runs.id > key)))
    floor = connection.scalar(select(Runs.ended).where(*where).order_by(Runs.ended.desc()).offset(SCANNED).limit(1))
    if floor is not None:
        where.append(Runs.ended >= floor)
    newest = select(*_SHOWN).where(*where, *_filters(wanted)).order_by(Runs.ended.desc(), Runs.id)
    # In Python, for databases fold the case of few languages.
    words = wanted.words.casefold()
    rows = connection.execute(newest, execution_options={"yield_per": 500})
    fit = (row for row in rows if words in row.goal.casefold() or row.id.startswith(words))
    found: list[Any] = list(islice(fit, wanted.limit))
    after = None if floor is None else (nextafter(floor, -inf), "")
    if len(found) == wanted.limit:
        after = found[-1].ended, found[-1].id
    return [{**row._mapping, **_inside(connection, row.id)} for row in found], after


def _filters(wanted: Wanted) -> Iterator[ColumnElement[bool]]:
    if wanted.outcome == "unknown":
        yield Runs.outcome.is_(None)
    elif wanted.outcome:
        yield Runs.outcome >= 0.5 if wanted.outcome == "success" else Runs.outcome < 0.5
    if wanted.tenant:
        yield Runs.tenant == wanted.tenant
    if wanted.version is not None:
        yield Runs.min_version <= wanted.version
        yield Runs.max_version >= wanted.version


def _inside(connection: Connection, key: str) -> dict[str, Any]:
    """What of a trajectory is in its body alone."""
    message = trajectory(connection, key)
    if message is None:
        return {"guided": False, "steps": 0, "labels": []}
    run = message.trajectory if isinstance(message, Attributed) else message
    labels = message.attribution.labels if isinstance(message, Attributed) else ()
    told = [label.label for label in labels]
    return {"guided": bool(run.experience_ids), "steps": len(run.steps), "labels": told}
