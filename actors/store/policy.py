"""What was ordered, learned, judged and served, as functions of a connection."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from actors.messages import BatchOrder, Candidate, Directive, Message, Serving, Verdict
from actors.store.outcomes import GIVEN_UP
from actors.store.runs import bodies
from actors.store.tables import (
    IN_AN_ORDER,
    Batches,
    CandidateBatches,
    Candidates,
    Directives,
    Record,
    Runs,
    Servings,
    Verdicts,
)

M = TypeVar("M", BatchOrder, Candidate, Verdict, Serving, Directive)
_KINDS: Mapping[type[Message], tuple[type[Record], Any]] = {
    BatchOrder: (Batches, Batches.created), Candidate: (Candidates, Candidates.version),
    Verdict: (Verdicts, Verdicts.created), Serving: (Servings, Servings.since),
    Directive: (Directives, Directives.created),
}  # fmt: skip
"""Where they are, and what they are sorted by."""
LOADED = ("started", "swapped")
"""After a swap that was refused or rolled back the engine serves on what it served before."""
_ANSWERS = 256
"""Newest answers of the learner among which the last that moved it is looked for."""


def newest(
    connection: Connection, kind: type[M], limit: int = 100, *, engine: str | None = None, kinds: Sequence[str] = ()
) -> list[M]:
    """What was ordered, made, judged, served (refusals included) or directed, newest first; versions highest first.
    Servings of one `engine`, and verdicts or directives of some `kinds`, if they are named."""
    table, time = _KINDS[kind]
    wanted = select(table.body).order_by(time.desc(), table.id).limit(limit)
    if engine is not None:
        wanted = wanted.where(Servings.engine == engine)
    if kinds:
        wanted = wanted.where((Verdicts.decision if kind is Verdict else Directives.kind).in_(kinds))
    return bodies(connection, wanted, kind)


def outstanding(connection: Connection) -> BatchOrder | None:
    """The newest order, if no candidate names it yet and it was not given up."""
    order = next(iter(newest(connection, BatchOrder, 1)), None)
    if order is None:
        return None
    answered = select(CandidateBatches.batch_id).where(CandidateBatches.batch_id == order.id)
    given_up = select(Runs.id).where(IN_AN_ORDER, Runs.batch_id == order.id, Runs.came == GIVEN_UP)
    return None if any(connection.scalar(one.limit(1)) for one in (answered, given_up)) else order


def head(connection: Connection) -> Candidate | None:
    """What the learner said last of where it stands: the version that it made, or went back to."""
    # Answers to skipped orders have the time of the version that they name, so they stand beside it and not before.
    said = select(Candidates.body).order_by(Candidates.created.desc(), Candidates.version.desc())
    found = bodies(connection, said.limit(_ANSWERS), Candidate)
    return next((candidate for candidate in found if candidate.answer in ("trained", "went_back")), None)


def first_served(connection: Connection) -> int | None:
    """The version that was served before any other; None before one was."""
    loaded = select(Servings.version).where(Servings.result.in_(LOADED))
    return connection.scalar(loaded.order_by(Servings.since, Servings.id).limit(1))


def frozen(connection: Connection) -> bool:
    """Whether the last freeze or thaw was a freeze."""
    wanted = select(Directives.kind).where(Directives.kind.in_(("freeze", "thaw")))
    return connection.scalar(wanted.order_by(Directives.created.desc(), Directives.id).limit(1)) == "freeze"
