"""What became of orders and versions: trained on what, judged how, served where and how long, taken back why.

run -> the order that held it -> versions that came of it -> verdicts -> engines that served them, from when to when
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, func, select, union

from actors.messages import BatchOrder, Candidate, Directive, Serving, Verdict
from actors.store.columns import among
from actors.store.policy import LOADED
from actors.store.runs import bodies
from actors.store.tables import (
    IN_AN_ORDER,
    Batches,
    CandidateBatches,
    Candidates,
    Directives,
    Runs,
    Servings,
    Verdicts,
)


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
    swaps: tuple[Serving, ...] = ()
    """What engines were made to serve, newest first, refusals included."""
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


V = TypeVar("V", Serving, Verdict, Span)


def order_of(connection: Connection, key: str) -> Order:
    """The order `key`, with what came of it."""
    # An answer that made no version names the one that stands.
    made = sorted({one.version for one in answers(connection, [key]) if one.answer == "trained"})
    versions = tuple(one for number in made for one in _between(connection, number, number))
    return msgspec.structs.replace(_order(connection, key), versions=versions)


def answers(connection: Connection, batch_ids: Iterable[str]) -> list[Candidate]:
    """What the learner said to these orders."""
    named = select(CandidateBatches.candidate_id).where(among(CandidateBatches.batch_id, batch_ids))
    return bodies(connection, select(Candidates.body).where(Candidates.id.in_(named)), Candidate)


def history(connection: Connection, newest: int | None = None) -> list[Version]:
    """Versions that were trained, judged or served, by version; all of them, or the `newest` so many."""
    known = numbers(connection)
    known = known if newest is None else known[-newest:]
    return _between(connection, known[0], known[-1]) if known else []


def numbers(connection: Connection) -> list[int]:
    """All versions that the store knows anything of, by version."""
    found = connection.scalars(union(*(select(row.version) for row in (Candidates, Verdicts, Servings))))
    return sorted({*found, *_ordered_back(connection)})


def why(connection: Connection, version: int) -> Why | None:
    """Where `version` comes from and what it did; None if the store knows no such version."""
    item = next(iter(_between(connection, version, version)), None)
    if item is None:
        return None
    candidate = _candidates(connection, version, version).get(version)
    batches = tuple(_order(connection, key) for key in (candidate.batch_ids if candidate is not None else ()))
    return Why(history=item, candidate=candidate, line=_line(connection, item), batches=batches)


def spans(connection: Connection, low: int = 0, high: int | None = None) -> list[Span]:
    """Of versions from `low` to `high` (None: to the newest), the earliest first."""
    order = Servings.since, Servings.id
    until = func.lead(Servings.since).over(partition_by=Servings.engine, order_by=order).label("until")
    columns = Servings.id, Servings.engine, Servings.version, Servings.since, until
    event = select(*columns).where(Servings.result.in_(LOADED)).subquery().c
    wanted = select(event.engine, event.version, event.since, event.until).where(event.version >= low)
    if high is not None:
        wanted = wanted.where(event.version <= high)
    return [Span(**one._asdict()) for one in connection.execute(wanted.order_by(event.since, event.id))]


def _between(connection: Connection, low: int, high: int) -> list[Version]:
    candidates, of_version = _candidates(connection, low, high), Servings.version.between(low, high)
    newest = select(Servings.body).where(of_version).order_by(Servings.since.desc(), Servings.id)
    made = _by_version(bodies(connection, newest, Serving))
    wanted = select(Verdicts.body).where(Verdicts.version.between(low, high)).order_by(Verdicts.created)
    verdicts = _by_version(bodies(connection, wanted, Verdict))
    served, back = _by_version(spans(connection, low, high)), _ordered_back(connection)
    found: list[Version] = []
    for number in sorted({*candidates, *verdicts, *made, *(one for one in back if low <= one <= high)}):
        told, swaps = candidates.get(number), tuple(made[number])
        refused = (
            Setback(at=one.since, kind=one.result, who=one.engine, reason=one.reason)
            for one in swaps if one.result not in LOADED
        )  # fmt: skip
        found.append(
            Version(
                version=number, parent=told and told.parent, trained=told and told.created,
                manifest=told.manifest if told else "", verdicts=tuple(verdicts[number]),
                served=tuple(served[number]), swaps=swaps,
                setbacks=tuple(sorted((*back[number], *refused), key=lambda one: one.at)),
            )
        )  # fmt: skip
    return found


def _by_version(items: Iterable[V]) -> defaultdict[int, list[V]]:
    found: defaultdict[int, list[V]] = defaultdict(list)
    for item in items:
        found[item.version].append(item)
    return found


def _candidates(connection: Connection, low: int, high: int) -> dict[int, Candidate]:
    """The announcement of each version; other answers only name it."""
    heard = bodies(connection, select(Candidates.body).where(Candidates.version.between(low, high)), Candidate)
    return {candidate.version: candidate for candidate in heard if candidate.answer == "trained"}


def _ordered_back(connection: Connection) -> defaultdict[int, list[Setback]]:
    """Orders to take a version back, by version."""
    found: defaultdict[int, list[Setback]] = defaultdict(list)
    for directive in bodies(connection, select(Directives.body).where(Directives.kind == "rollback"), Directive):
        bad = directive.details.get("version", "")
        if bad.isdecimal():
            setback = Setback(at=directive.created, kind="rollback", who=directive.origin, reason=directive.reason)
            found[int(bad)].append(setback)
    return found


def _line(connection: Connection, item: Version) -> tuple[int, ...]:
    parents = {version: parent for version, parent in connection.execute(select(Candidates.version, Candidates.parent))}
    line: list[int] = []
    version, parent = item.version, item.parent
    # A parent is always a lower version, which is what ends this.
    while parent is not None and 0 <= parent < version:
        line.append(parent)
        version, parent = parent, parents.get(parent)
    return tuple(line)


def _order(connection: Connection, key: str) -> Order:
    kind = Runs.tenant, Runs.source
    held = select(*kind, func.count().label("trajectories")).where(IN_AN_ORDER, Runs.batch_id == key)
    sources = tuple(dict(one._mapping) for one in connection.execute(held.group_by(*kind).order_by(*kind)))
    order = next(iter(bodies(connection, select(Batches.body).where(Batches.id == key), BatchOrder)), None)
    return Order(
        batch_id=key, created=order and order.created, trajectories=len(order.trajectories) if order else 0,
        sources=sources,
    )  # fmt: skip
