"""The ledger of learning: trajectory -> batches -> versions -> verdicts -> served from and to."""

import msgspec
from sqlalchemy import Connection, select

from actors.store import reading
from actors.store import tables as t
from actors.store.spans import Span, spans

_CARRIERS = 100


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
    """Where versions that descend from it were served, for they carry what it learned: the newest hundred, these
    first."""
    carriers: int = 0
    """Of them in all."""


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
    children: dict[int, list[int]] = {}
    for version, parent in edges:
        children.setdefault(parent, []).append(version)
    lines = tuple(
        BatchLine(batch_id=order.id, created=order.created, versions=_versions(connection, order.id, children))
        for order in orders
    )
    return Lineage(trajectory_id=trajectory_id, batches=lines, dropped=dropped)


def _versions(connection: Connection, batch_id: str, children: dict[int, list[int]]) -> tuple[VersionLine, ...]:
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
        heirs, all_spans = _heirs(version, children), spans(connection, version)
        carried = [span for span in all_spans if span.version in heirs]
        lines.append(
            VersionLine(
                version=version,
                parent=parent,
                created=created,
                verdicts=tuple(Judged(decision=v.decision, reason=v.reason, created=v.created) for v in judged),
                served=tuple(span for span in all_spans if span.version == version),
                carried_by=tuple(reversed(carried[-_CARRIERS:])),
                carriers=len(carried),
            )
        )
    return tuple(lines)


def _heirs(version: int, children: dict[int, list[int]]) -> set[int]:
    """All that descend from `version`."""
    found, fresh = set[int](), {version}
    while fresh:
        # A child is always a higher version, which is what ends this.
        fresh = {child for parent in fresh for child in children.get(parent, ()) if child > parent}
        found |= fresh
    return found
