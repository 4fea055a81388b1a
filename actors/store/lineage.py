"""The ledger of learning: trajectory -> batches -> versions -> verdicts -> served from and to."""

from itertools import pairwise

import msgspec
from sqlalchemy import Connection, select

from actors.messages import Serving
from actors.store import reading
from actors.store import tables as t

_SERVINGS = 10_000
_LOADED = ("started", "swapped")
"""After a swap that was refused or rolled back the engine serves on what it served before."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` served `version` from `since` to `until` (unix seconds; None: it still does)."""

    engine: str
    version: int
    since: float
    until: float | None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate said of a version."""

    decision: str
    reason: str
    created: float


class VersionLine(msgspec.Struct, frozen=True, kw_only=True):
    """A version that a trajectory was trained into."""

    version: int
    parent: int
    created: float
    verdicts: tuple[Judged, ...] = ()
    served: tuple[Span, ...] = ()
    carried_by: tuple[Span, ...] = ()
    """Where versions that descend from it were served: they carry what it learned."""


class BatchLine(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that a trajectory was in."""

    batch_id: str
    created: float
    versions: tuple[VersionLine, ...] = ()


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trajectory."""

    trajectory_id: str
    batches: tuple[BatchLine, ...] = ()
    dropped: str = ""
    """Why it is in no batch and will not be."""


def lineage(connection: Connection, trajectory_id: str) -> Lineage:
    """Follow `trajectory_id` to where its lesson was served; all empty if nothing was made of it."""
    dropped = connection.scalar(select(t.TrajectoryRow.dropped).where(t.TrajectoryRow.id == trajectory_id)) or ""
    member, batch = t.BatchMemberRow, t.BatchRow
    orders = connection.execute(
        select(batch.id, batch.created)
        .join(member, member.batch_id == batch.id)
        .where(member.trajectory_id == trajectory_id)
        .order_by(batch.created, batch.id)
    ).all()
    if not orders:
        return Lineage(trajectory_id=trajectory_id, dropped=dropped)
    candidate = t.CandidateRow
    edges = connection.execute(select(candidate.version, candidate.parent))
    parents: dict[int, int] = {edge.version: edge.parent for edge in edges}
    spans = _spans(reading.servings(connection, None, _SERVINGS))
    lines = tuple(
        BatchLine(batch_id=order.id, created=order.created, versions=_versions(connection, order.id, parents, spans))
        for order in orders
    )
    return Lineage(trajectory_id=trajectory_id, batches=lines, dropped=dropped)


def _versions(
    connection: Connection, batch_id: str, parents: dict[int, int], spans: list[Span]
) -> tuple[VersionLine, ...]:
    row, link, verdict = t.CandidateRow, t.CandidateBatchRow, t.VerdictRow
    found = connection.execute(
        select(row.version, row.parent, row.created)
        .join(link, link.candidate_id == row.id)
        .where(link.batch_id == batch_id)
        .order_by(row.version)
    ).all()
    lines: list[VersionLine] = []
    for version, parent, created in found:
        judged = reading.bodies(
            connection,
            select(verdict.body).where(verdict.version == version).order_by(verdict.created),
            reading.Verdict,
        )
        heirs = {other for other in parents if other != version and _descends(other, version, parents)}
        lines.append(
            VersionLine(
                version=version,
                parent=parent,
                created=created,
                verdicts=tuple(Judged(decision=v.decision, reason=v.reason, created=v.created) for v in judged),
                served=tuple(span for span in spans if span.version == version),
                carried_by=tuple(span for span in spans if span.version in heirs),
            )
        )
    return tuple(lines)


def _descends(version: int, ancestor: int, parents: dict[int, int]) -> bool:
    # A parent is always a lower version, which is what ends this.
    while version > ancestor and version in parents and parents[version] < version:
        version = parents[version]
    return version == ancestor


def _spans(servings: list[Serving]) -> list[Span]:
    """Who served what from when to when."""
    by_engine: dict[str, list[Serving]] = {}
    for serving in sorted((s for s in servings if s.result in _LOADED), key=lambda s: (s.since, s.id)):
        by_engine.setdefault(serving.engine, []).append(serving)
    spans: list[Span] = []
    for engine, events in by_engine.items():
        for event, following in pairwise([*events, None]):
            if event is None:
                continue
            until = None if following is None else following.since
            served = event.previous if event.result == "rolled_back" else event.version
            spans.append(Span(engine=engine, version=served, since=event.since, until=until))
    return spans
