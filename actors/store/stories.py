"""What became of orders and versions: trained on what, judged how, served where and how long, taken back why.

run -> orders that held it -> versions that came of them -> verdicts -> engines that served them, from when to when
"""

from typing import Any

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Candidate, Directive, Serving, Verdict
from actors.store import reading
from actors.store import tables as t

LOADED = ("started", "swapped")
"""After a swap that was refused or rolled back the engine serves on what it served before."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` served `version` from `since` to `until` (unix seconds; None: it still does)."""

    engine: str
    version: int
    since: float
    until: float | None


class Setback(msgspec.Struct, frozen=True, kw_only=True):
    """A swap to a version that was refused or rolled back, or an order to take it back."""

    at: float
    kind: str
    """refused, rolled_back, or rollback: ordered by a person or the sentinel."""
    who: str
    """The engine, or who ordered it."""
    reason: str


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a version; times are unix seconds."""

    version: int
    parent: int | None = None
    """None if no candidate tells: it was there before."""
    trained: float | None = None
    manifest: str = ""
    """sha256 of its manifest."""
    verdicts: tuple[Verdict, ...] = ()
    served: tuple[Span, ...] = ()
    setbacks: tuple[Setback, ...] = ()


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order to train."""

    batch_id: str
    created: float | None
    trajectories: int
    sources: tuple[dict[str, Any], ...] = ()
    """How many of them by tenant and source; what the store no longer has is in none."""
    versions: tuple[Version, ...] = ()


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one version."""

    history: Version
    candidate: Candidate | None
    """Files, batches and the learner's metrics."""
    line: tuple[int, ...]
    """Its parent, and so on to the first."""
    batches: tuple[Order, ...]
    """It was trained on."""


def orders_of(connection: Connection, trajectory_id: str) -> tuple[Order, ...]:
    """Orders that held a run, with what came of them; the oldest first."""
    member, batch, link, row = t.BatchMemberRow, t.BatchRow, t.CandidateBatchRow, t.CandidateRow
    held = select(batch.id).join(member, member.batch_id == batch.id).where(member.trajectory_id == trajectory_id)
    found: list[Order] = []
    for key in connection.scalars(held.order_by(batch.created, batch.id)).all():
        named = select(row.body).join(link, link.candidate_id == row.id).where(link.batch_id == key)
        # An answer that made no version names the one that stands.
        made = {one.version for one in reading.bodies(connection, named, Candidate) if one.answer == "trained"}
        versions = tuple(one for number in sorted(made) for one in _between(connection, number, number))
        found.append(msgspec.structs.replace(_order(connection, key), versions=versions))
    return tuple(found)


def fate_of(connection: Connection, trajectory_id: str) -> dict[str, str]:
    """Why no order has a run, and what came of it in one; empty while that is open."""
    row = t.TrajectoryRow
    found = connection.execute(select(row.dropped, row.came).where(row.id == trajectory_id)).first()
    return {"dropped": "", "came": ""} if found is None else dict(found._mapping)


def history(connection: Connection, newest: int | None = None) -> list[Version]:
    """Versions that were trained, judged or served, by version; all of them, or the `newest` so many."""
    known = numbers(connection)
    known = known if newest is None else known[-newest:]
    return _between(connection, known[0], known[-1]) if known else []


def numbers(connection: Connection) -> list[int]:
    """All versions that the store knows anything of, by version."""
    rows = (t.CandidateRow, t.VerdictRow, t.ServingRow)
    found = {number for row in rows for number in connection.scalars(select(row.version).distinct())}
    return sorted(found | _ordered_back(connection).keys())


def swaps(connection: Connection, low: int, high: int) -> dict[int, list[Serving]]:
    """What engines were made to serve, by version from `low` to `high`, newest first, refusals included."""
    row, found = t.ServingRow, dict[int, list[Serving]]()
    wanted = select(row.body).where(row.version.between(low, high)).order_by(row.since.desc(), row.id)
    for one in reading.bodies(connection, wanted, Serving):
        found.setdefault(one.version, []).append(one)
    return found


def why(connection: Connection, version: int) -> Why | None:
    """Where `version` comes from and what it did; None if the store knows no such version."""
    item = next(iter(_between(connection, version, version)), None)
    if item is None:
        return None
    candidate = _candidates(connection, version, version).get(version)
    batches = tuple(_order(connection, key) for key in (candidate.batch_ids if candidate is not None else ()))
    return Why(history=item, candidate=candidate, line=_line(connection, item), batches=batches)


def first_served(connection: Connection) -> int | None:
    """The version that was served before any other; None before one was."""
    row = t.ServingRow
    return connection.scalar(select(row.version).where(row.result.in_(LOADED)).order_by(row.since, row.id).limit(1))


def spans(connection: Connection, low: int = 0, high: int | None = None) -> list[Span]:
    """Of versions from `low` to `high` (None: to the newest), the earliest first."""
    row = t.ServingRow
    following = func.lead(row.since).over(partition_by=row.engine, order_by=(row.since, row.id)).label("until")
    event = select(row.id, row.engine, row.version, row.since, following).where(row.result.in_(LOADED)).subquery()
    wanted = select(event.c.engine, event.c.version, event.c.since, event.c.until).where(event.c.version >= low)
    if high is not None:
        wanted = wanted.where(event.c.version <= high)
    found = connection.execute(wanted.order_by(event.c.since, event.c.id))
    return [Span(**one._asdict()) for one in found]


def _between(connection: Connection, low: int, high: int) -> list[Version]:
    candidates, made = _candidates(connection, low, high), swaps(connection, low, high)
    row, verdicts, served = t.VerdictRow, dict[int, list[Verdict]](), dict[int, list[Span]]()
    wanted = select(row.body).where(row.version.between(low, high)).order_by(row.created)
    for verdict in reading.bodies(connection, wanted, Verdict):
        verdicts.setdefault(verdict.version, []).append(verdict)
    for span in spans(connection, low, high):
        served.setdefault(span.version, []).append(span)
    setbacks = {number: back for number, back in _ordered_back(connection).items() if low <= number <= high}
    for number, servings in made.items():
        setbacks.setdefault(number, []).extend(
            Setback(at=item.since, kind=item.result, who=item.engine, reason=item.reason)
            for item in servings
            if item.result not in LOADED
        )
    found: list[Version] = []
    for number in sorted({*candidates, *verdicts, *made, *setbacks}):
        told = candidates.get(number)
        found.append(
            Version(
                version=number, parent=told and told.parent, trained=told and told.created,
                manifest=told.manifest if told else "", verdicts=tuple(verdicts.get(number, ())),
                served=tuple(served.get(number, ())),
                setbacks=tuple(sorted(setbacks.get(number, ()), key=lambda item: item.at)),
            )
        )  # fmt: skip
    return found


def _candidates(connection: Connection, low: int, high: int) -> dict[int, Candidate]:
    """The announcement of each version; other answers only name it."""
    row = t.CandidateRow
    heard = reading.bodies(connection, select(row.body).where(row.version.between(low, high)), Candidate)
    return {candidate.version: candidate for candidate in heard if candidate.answer == "trained"}


def _ordered_back(connection: Connection) -> dict[int, list[Setback]]:
    """Orders to take a version back, by version."""
    row, found = t.DirectiveRow, dict[int, list[Setback]]()
    for directive in reading.bodies(connection, select(row.body).where(row.kind == "rollback"), Directive):
        bad = directive.details.get("version", "")
        if bad.isdecimal():
            setback = Setback(at=directive.created, kind="rollback", who=directive.origin, reason=directive.reason)
            found.setdefault(int(bad), []).append(setback)
    return found


def _line(connection: Connection, item: Version) -> tuple[int, ...]:
    row, line = t.CandidateRow, list[int]()
    parents = {one.version: one.parent for one in connection.execute(select(row.version, row.parent))}
    version, parent = item.version, item.parent
    # A parent is always a lower version, which is what ends this.
    while parent is not None and 0 <= parent < version:
        line.append(parent)
        version, parent = parent, parents.get(parent)
    return tuple(line)


def _order(connection: Connection, key: str) -> Order:
    member, run, batch = t.BatchMemberRow, t.TrajectoryRow, t.BatchRow
    kind = run.tenant, run.source
    held = select(*kind, func.count().label("trajectories")).join(member, member.trajectory_id == run.id)
    sources = connection.execute(held.where(member.batch_id == key).group_by(*kind).order_by(*kind))
    return Order(
        batch_id=key, created=connection.scalar(select(batch.created).where(batch.id == key)),
        trajectories=connection.scalar(select(func.count()).where(member.batch_id == key)) or 0,
        sources=tuple(dict(one._mapping) for one in sources),
    )  # fmt: skip
