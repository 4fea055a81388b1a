"""What became of every version: trained from what, judged how, served where and how long, taken back why."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from sqlalchemy import Connection, func, select

from actors.messages import Candidate, Directive, Serving, Verdict, derived_id
from actors.store import reading
from actors.store import tables as t
from actors.store.engine import chunks

_LIMIT = 100_000
"""Records of a kind that are read."""
_LOADED = ("started", "swapped")


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
    ancestry: tuple[VersionHistory, ...]
    """Its parent, and so on to the first."""
    batches: tuple[BatchSources, ...]
    """Of the version itself."""


def history(connection: Connection) -> list[VersionHistory]:
    """All versions that were trained, judged or served, by version."""
    candidates = _candidates(connection)
    verdicts = sorted(reading.verdicts(connection, _LIMIT), key=lambda item: item.created)
    servings = sorted(reading.servings(connection, None, _LIMIT), key=lambda item: (item.since, item.id))
    directives = sorted(reading.directives(connection, _LIMIT), key=lambda item: item.created)
    served, setbacks = _served(servings), _setbacks(servings, directives)
    numbers = {*candidates, *served, *setbacks, *(verdict.version for verdict in verdicts)}
    return [
        VersionHistory(
            version=number,
            parent=candidates[number].parent if number in candidates else None,
            trained=candidates[number].created if number in candidates else None,
            manifest=candidates[number].manifest if number in candidates else "",
            verdicts=tuple(verdict for verdict in verdicts if verdict.version == number),
            served=tuple(served.get(number, ())),
            setbacks=tuple(setbacks.get(number, ())),
        )
        for number in sorted(numbers)
    ]


def why(connection: Connection, version: int) -> Why | None:
    """Where `version` comes from and what it did; None if the store knows no such version."""
    known = {item.version: item for item in history(connection)}
    if version not in known:
        return None
    ancestry: list[VersionHistory] = []
    parent = known[version].parent
    # A parent is always a lower version, which is what ends this.
    while parent is not None and parent >= 0 and parent < (ancestry[-1].version if ancestry else version):
        ancestry.append(known.get(parent) or VersionHistory(version=parent))
        parent = ancestry[-1].parent
    candidate = _candidates(connection).get(version)
    batches = () if candidate is None else tuple(_batch(connection, key) for key in candidate.batch_ids)
    return Why(history=known[version], candidate=candidate, ancestry=tuple(ancestry), batches=batches)


def _candidates(connection: Connection) -> dict[int, Candidate]:
    """The first announcement of each version; later ones only answer orders that trained nothing."""
    found: dict[int, Candidate] = {}
    for candidate in reading.candidates(connection, _LIMIT):
        before = found.get(candidate.version)
        if before is None or candidate.id == derived_id("candidate", candidate.version):
            found[candidate.version] = candidate
    return found


def _served(servings: Sequence[Serving]) -> dict[int, list[Served]]:
    by_engine: dict[str, list[Serving]] = {}
    for serving in servings:
        if serving.result in _LOADED:
            by_engine.setdefault(serving.engine, []).append(serving)
    spans: dict[int, list[Served]] = {}
    for engine, events in by_engine.items():
        for event, following in pairwise([*events, None]):
            if event is not None:
                until = None if following is None else following.since
                spans.setdefault(event.version, []).append(Served(engine=engine, since=event.since, until=until))
    return spans


def _setbacks(servings: Sequence[Serving], directives: Sequence[Directive]) -> dict[int, list[Setback]]:
    found: dict[int, list[Setback]] = {}
    for item in servings:
        if item.result not in _LOADED:
            setback = Setback(at=item.since, kind=item.result, who=item.engine, reason=item.reason)
            found.setdefault(item.version, []).append(setback)
    for directive in directives:
        bad = directive.details.get("version", "")
        if directive.kind == "rollback" and bad.isdecimal():
            setback = Setback(at=directive.created, kind="rollback", who=directive.origin, reason=directive.reason)
            found.setdefault(int(bad), []).append(setback)
    return {version: sorted(setbacks, key=lambda item: item.at) for version, setbacks in found.items()}


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
