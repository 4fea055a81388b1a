"""What became of every version: trained from what, judged how, served where and how long, taken back why."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Candidate, Directive, Serving, Verdict
from actors.store import reading
from actors.store import tables as t
from actors.store.engine import chunks
from actors.store.spans import LOADED, spans

_ANCESTORS = 100
"""Of a version that are told of."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` served it from `since` to `until` (unix seconds; None: it still does)."""

    engine: str
    since: float
    until: float | None = None


class Setback(msgspec.Struct, frozen=True, kw_only=True):
    """A swap to it that was refused or rolled back, or an order to take it back."""

    at: float
    kind: str
    """refused, rolled_back, or rollback: ordered by a person or the sentinel."""
    who: str
    """The engine, or who ordered it."""
    reason: str


class VersionHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One version."""

    version: int
    parent: int | None = None
    """None if no candidate tells: it was there before."""
    trained: float | None = None
    """Unix seconds."""
    manifest: str = ""
    """sha256 of its manifest."""
    verdicts: tuple[Verdict, ...] = ()
    served: tuple[Served, ...] = ()
    setbacks: tuple[Setback, ...] = ()


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """A version that another one comes from."""

    version: int
    trained: float | None
    """Unix seconds."""
    decision: str | None
    """The gate's last."""
    served: bool


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Trajectories of one tenant and source in a batch."""

    tenant: str
    source: str
    trajectories: int


class BatchSources(msgspec.Struct, frozen=True, kw_only=True):
    """An order that a version was trained on."""

    batch_id: str
    created: float | None
    trajectories: int
    sources: tuple[Source, ...] = ()
    """By tenant and source; what the store no longer has is in none."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one version."""

    history: VersionHistory
    candidate: Candidate | None
    """Files, batches and the learner's metrics."""
    ancestry: tuple[Ancestor, ...]
    """Its parent, and so on, the nearest hundred."""
    ancestors: int
    """To the first."""
    batches: tuple[BatchSources, ...]
    """Of the version itself."""


def history(connection: Connection, newest: int | None = None) -> list[VersionHistory]:
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
    batches = () if candidate is None else tuple(_batch(connection, key) for key in candidate.batch_ids)
    line = _line(connection, item)
    return Why(
        history=item, candidate=candidate, ancestry=_ancestors(connection, line[:_ANCESTORS]),
        ancestors=len(line), batches=batches,
    )  # fmt: skip


def _between(connection: Connection, low: int, high: int) -> list[VersionHistory]:
    candidates = _candidates(connection, low, high)
    row, verdicts = t.VerdictRow, dict[int, list[Verdict]]()
    wanted = select(row.body).where(row.version.between(low, high)).order_by(row.created)
    for verdict in reading.bodies(connection, wanted, Verdict):
        verdicts.setdefault(verdict.version, []).append(verdict)
    served: dict[int, list[Served]] = {}
    for span in spans(connection, low, high):
        served.setdefault(span.version, []).append(Served(engine=span.engine, since=span.since, until=span.until))
    made = swaps(connection, low, high)
    setbacks = {number: back for number, back in _ordered_back(connection).items() if low <= number <= high}
    for number, servings in made.items():
        setbacks.setdefault(number, []).extend(
            Setback(at=item.since, kind=item.result, who=item.engine, reason=item.reason)
            for item in servings
            if item.result not in LOADED
        )
    return [
        VersionHistory(
            version=number,
            parent=candidates[number].parent if number in candidates else None,
            trained=candidates[number].created if number in candidates else None,
            manifest=candidates[number].manifest if number in candidates else "",
            verdicts=tuple(verdicts.get(number, ())),
            served=tuple(served.get(number, ())),
            setbacks=tuple(sorted(setbacks.get(number, ()), key=lambda item: item.at)),
        )
        for number in sorted({*candidates, *verdicts, *made, *setbacks})
    ]


def _candidates(connection: Connection, low: int, high: int) -> dict[int, Candidate]:
    """The announcement of each version; other answers only name it."""
    row = t.CandidateRow
    wanted = select(row.body).where(row.version.between(low, high))
    heard = reading.bodies(connection, wanted, Candidate)
    return {candidate.version: candidate for candidate in heard if candidate.answer == "trained"}


def _ordered_back(connection: Connection) -> dict[int, list[Setback]]:
    """Orders to take a version back, by version."""
    row, found = t.DirectiveRow, dict[int, list[Setback]]()
    wanted = select(row.body).where(row.kind == "rollback")
    for directive in reading.bodies(connection, wanted, Directive):
        bad = directive.details.get("version", "")
        if bad.isdecimal():
            setback = Setback(at=directive.created, kind="rollback", who=directive.origin, reason=directive.reason)
            found.setdefault(int(bad), []).append(setback)
    return found


def _line(connection: Connection, item: VersionHistory) -> list[int]:
    """Its parent, and so on to the first."""
    row, line = t.CandidateRow, list[int]()
    parents = {one.version: one.parent for one in connection.execute(select(row.version, row.parent))}
    version, parent = item.version, item.parent
    # A parent is always a lower version, which is what ends this.
    while parent is not None and 0 <= parent < version:
        line.append(parent)
        version, parent = parent, parents.get(parent)
    return line


def _ancestors(connection: Connection, line: Sequence[int]) -> tuple[Ancestor, ...]:
    trained, decided, served = dict[int, float](), dict[int, str](), set[int]()
    candidate, verdict, serving = t.CandidateRow, t.VerdictRow, t.ServingRow
    for part in chunks(line):
        of_candidates = select(candidate.version, candidate.created).where(candidate.version.in_(part))
        for one in connection.execute(of_candidates.order_by(candidate.created.desc())):
            trained[one.version] = one.created  # the first announcement stays
        of_verdicts = select(verdict.version, verdict.decision).where(verdict.version.in_(part))
        decided.update((one[0], one[1]) for one in connection.execute(of_verdicts.order_by(verdict.created)))
        loaded = select(serving.version).where(serving.version.in_(part), serving.result.in_(LOADED))
        served.update(connection.scalars(loaded.distinct()))
    return tuple(
        Ancestor(version=one, trained=trained.get(one), decision=decided.get(one), served=one in served) for one in line
    )


def _batch(connection: Connection, key: str) -> BatchSources:
    member, run, batch = t.BatchMemberRow, t.TrajectoryRow, t.BatchRow
    ids = list(connection.scalars(select(member.trajectory_id).where(member.batch_id == key)))
    counts: dict[tuple[str, str], int] = {}
    for part in chunks(ids):
        rows = connection.execute(
            select(run.tenant, run.source, func.count()).where(run.id.in_(part)).group_by(run.tenant, run.source)
        )
        for tenant, source, number in rows:
            counts[tenant, source] = counts.get((tenant, source), 0) + number
    return BatchSources(
        batch_id=key,
        created=connection.scalar(select(batch.created).where(batch.id == key)),
        trajectories=len(ids),
        sources=tuple(
            Source(tenant=tenant, source=source, trajectories=number)
            for (tenant, source), number in sorted(counts.items())
        ),
    )
