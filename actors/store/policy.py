"""What was ordered, learned, judged and served, as functions of a connection."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from actors.messages import BatchOrder, Candidate, Directive, Serving, Verdict
from actors.store.outcomes import GIVEN_UP
from actors.store.runs import bodies
from actors.store.tables import (
    Batches,
    BatchMembers,
    CandidateBatches,
    Candidates,
    Directives,
    Runs,
    Servings,
    Verdicts,
)

LOADED = ("started", "swapped")
"""After a swap that was refused or rolled back the engine serves on what it served before."""
_ANSWERS = 256
"""Newest answers of the learner among which the last that moved it is looked for."""


def batches(connection: Connection, limit: int = 100) -> list[BatchOrder]:
    """Orders, newest first."""
    newest = select(Batches.body).order_by(Batches.created.desc(), Batches.id)
    return bodies(connection, newest.limit(limit), BatchOrder)


def outstanding(connection: Connection) -> BatchOrder | None:
    """The newest order, if no candidate names it yet and it was not given up."""
    order = next(iter(batches(connection, 1)), None)
    if order is None:
        return None
    answered = select(CandidateBatches.batch_id).where(CandidateBatches.batch_id == order.id)
    members = select(Runs.id).join(BatchMembers, BatchMembers.trajectory_id == Runs.id)
    given_up = members.where(BatchMembers.batch_id == order.id, Runs.came == GIVEN_UP)
    return None if any(connection.scalar(one.limit(1)) for one in (answered, given_up)) else order


def candidates(connection: Connection, limit: int = 100) -> list[Candidate]:
    """Weight versions, highest first."""
    highest = select(Candidates.body).order_by(Candidates.version.desc(), Candidates.created.desc())
    return bodies(connection, highest.limit(limit), Candidate)


def head(connection: Connection) -> Candidate | None:
    """What the learner said last of where it stands: the version that it made, or went back to."""
    # Answers to skipped orders have the time of the version that they name, so they stand beside it and not before.
    newest = select(Candidates.body).order_by(Candidates.created.desc(), Candidates.version.desc())
    found = bodies(connection, newest.limit(_ANSWERS), Candidate)
    return next((candidate for candidate in found if candidate.answer in ("trained", "went_back")), None)


def verdicts(connection: Connection, limit: int = 100) -> list[Verdict]:
    """What the gate said, newest first."""
    newest = select(Verdicts.body).order_by(Verdicts.created.desc(), Verdicts.version.desc())
    return bodies(connection, newest.limit(limit), Verdict)


def servings(connection: Connection, engine: str | None = None, limit: int = 100) -> list[Serving]:
    """What engines were made to serve, newest first, refusals included."""
    newest = select(Servings.body).order_by(Servings.since.desc(), Servings.id).limit(limit)
    return bodies(connection, newest if engine is None else newest.where(Servings.engine == engine), Serving)


def last_serving(connection: Connection, engine: str) -> Serving | None:
    """What `engine` was last made to serve; a swap that was refused or rolled back left what was there."""
    return next((one for one in servings(connection, engine) if one.result in LOADED), None)


def first_served(connection: Connection) -> int | None:
    """The version that was served before any other; None before one was."""
    loaded = select(Servings.version).where(Servings.result.in_(LOADED))
    return connection.scalar(loaded.order_by(Servings.since, Servings.id).limit(1))


def directives(connection: Connection, limit: int = 100, kinds: Sequence[str] = ()) -> list[Directive]:
    """Directives, newest first; of these `kinds`, if any are named."""
    newest = select(Directives.body).order_by(Directives.created.desc(), Directives.id)
    newest = newest.where(Directives.kind.in_(kinds)) if kinds else newest
    return bodies(connection, newest.limit(limit), Directive)


def frozen(connection: Connection) -> bool:
    """Whether the last freeze or thaw was a freeze."""
    wanted = select(Directives.kind).where(Directives.kind.in_(("freeze", "thaw")))
    return connection.scalar(wanted.order_by(Directives.created.desc(), Directives.id).limit(1)) == "freeze"
