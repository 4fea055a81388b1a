"""Questions to the store, as functions of a connection; `Store` runs them in a worker thread."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, func, select

from actors.kinds.holdout import held_out
from actors.messages import (
    Attributed,
    BatchOrder,
    Candidate,
    Directive,
    Exchange,
    Experience,
    Feedback,
    Serving,
    Trajectory,
    Verdict,
    decode,
)
from actors.ports.store import FailedCall, OutcomeRow
from actors.statistics.parties import newest, party_of
from actors.store import tables as t
from actors.store.columns import lookup
from actors.store.engine import chunks

T = TypeVar("T")
_SCANNED = 100_000
"""Newest production trajectories that the gate's evidence is looked for among, by id alone."""
_BEYOND = 5_000
"""Of those chosen, so many are looked at beyond the newest that would suffice, for parties that were pushed back."""
_ANSWERS = 256
"""Newest answers of the learner among which the last that moved it is looked for."""


class DeadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A parked record, without its payload."""

    id: str
    actor: str
    input_id: str
    subject: str
    size: int
    """Bytes of the payload."""
    error: str
    at: float


def bodies(connection: Connection, statement: Select[Any], kind: type[T]) -> list[T]:
    """The decoded `body` column of `statement`, those that are of `kind`."""
    found = [decode(body) for body in connection.scalars(statement)]
    return [message for message in found if isinstance(message, kind)]


def open_exchanges(connection: Connection, limit: int = 20_000) -> list[Exchange]:
    """Calls that are in no closed trajectory yet, oldest first, the newest `limit` of them."""
    row = t.ExchangeRow
    wanted = select(row.body).where(row.trajectory_id == "", row.stitched)
    return bodies(connection, wanted.order_by(row.started.desc(), row.id.desc()).limit(limit), Exchange)[::-1]


def exchanges(connection: Connection, ids: Sequence[str]) -> list[Exchange]:
    """Calls by id, those that are still kept."""
    row, found = t.ExchangeRow, list[Exchange]()
    for part in chunks(list(ids)):
        found += bodies(connection, select(row.body).where(row.id.in_(part)).order_by(row.id), Exchange)
    return found


def unjoined_feedback(connection: Connection, since: float = 0.0, limit: int = 10_000) -> list[Feedback]:
    """Feedback received after `since` that no trajectory has, newest first."""
    row = t.FeedbackRow
    wanted = select(row.body).where(row.joined == "", row.received >= since)
    return bodies(connection, wanted.order_by(row.received.desc(), row.id).limit(limit), Feedback)


def feedback_for(connection: Connection, trajectory_id: str) -> list[Feedback]:
    """What was said of a trajectory, oldest first."""
    row = t.FeedbackRow
    wanted = select(row.body).where(row.joined == trajectory_id).order_by(row.received, row.id)
    return bodies(connection, wanted, Feedback)


def step_feedback(connection: Connection, runs: Sequence[Trajectory]) -> dict[str, list[tuple[int, Feedback]]]:
    """What was said of single steps of `runs`: by trajectory, the step that each report means and the report, oldest
    first. Runs of whose steps nobody said anything are left out.

    A step is meant by its number, or by an id of its call.
    """
    told: dict[str, list[Feedback]] = {}
    row = t.FeedbackRow
    for part in chunks([run.id for run in runs]):
        wanted = select(row.joined, row.body).where(row.joined.in_(part)).order_by(row.received, row.id)
        for joined, body in connection.execute(wanted):
            said = decode(body)
            if isinstance(said, Feedback) and said.kind == "step" and said.outcome is not None:
                told.setdefault(joined, []).append(said)
    return {run.id: _steps_meant(connection, run, told[run.id]) for run in runs if run.id in told}


def _steps_meant(connection: Connection, run: Trajectory, told: list[Feedback]) -> list[tuple[int, Feedback]]:
    places: dict[str, int] = {}
    for number, step in enumerate(run.steps):
        places |= {name: number for name in (f"x{step.exchange_id}", f"r{step.response_id}")}
    row = t.ExchangeRow
    for custom in {said.custom_id for said in told if said.custom_id}:
        # A caller that gives an id twice means the newer call.
        wanted = select(row.id).where(
            row.tenant == run.tenant, row.custom_id == lookup(custom), row.trajectory_id == run.id
        )  # fmt: skip
        found = connection.scalar(wanted.order_by(row.started.desc()).limit(1))
        if found is not None and f"x{found}" in places:
            places[f"u{custom}"] = places[f"x{found}"]
    found_steps: list[tuple[int, Feedback]] = []
    for said in told:
        names = (f"x{said.exchange_id}", f"r{said.response_id}", f"u{said.custom_id}")
        number = next((places[name] for name in names if len(name) > 1 and name in places), None)
        number = number if said.step is None else said.step
        if number is not None and number < len(run.steps):
            found_steps.append((number, said))
    return found_steps


def find_trajectory(connection: Connection, feedback: Feedback) -> str:
    """Id of the closed trajectory that `feedback` means; empty if there is none.

    Ids that callers make up may come again: the newest trajectory that had begun when the feedback came is meant.
    """
    row, run = t.ExchangeRow, t.TrajectoryRow
    calls = (
        select(row.trajectory_id)
        .where(row.tenant == feedback.tenant, row.trajectory_id != "")
        .order_by((row.started <= feedback.received).desc(), row.started.desc())
    )
    tries: list[Select[Any]] = []
    if feedback.exchange_id:
        tries.append(calls.where(row.id == feedback.exchange_id))
    if feedback.response_id:
        tries.append(calls.where(row.response_id == lookup(feedback.response_id)))
    if feedback.custom_id:
        tries.append(calls.where(row.custom_id == lookup(feedback.custom_id)))
    if feedback.trajectory_id:
        # Who names the trajectory means its main line.
        main = calls.join(run, run.id == row.trajectory_id).where(run.side_of == "")
        tries.append(main.where(row.explicit == lookup(feedback.trajectory_id)))
        tries.append(select(run.id).where(run.id == feedback.trajectory_id, run.tenant == feedback.tenant))
    for statement in tries:
        found = connection.scalar(statement.limit(1))
        if found:
            return found
    return ""


def trajectory(connection: Connection, trajectory_id: str) -> Attributed | Trajectory | None:
    """The trajectory, with its credit once it has some."""
    body = connection.scalar(select(t.TrajectoryRow.body).where(t.TrajectoryRow.id == trajectory_id))
    message = None if body is None else decode(body)
    return message if isinstance(message, Attributed | Trajectory) else None


def recent_attributed(connection: Connection, *, source: str | None = None, limit: int = 100) -> list[Attributed]:
    """Attributed trajectories, newest first."""
    row = t.TrajectoryRow
    order = row.ended.desc(), row.id
    newest = select(row.id).where(row.attributed, *([] if source is None else [row.source == source]))
    # By id first: sorted with their bodies, all that there are would be read.
    wanted = select(row.body).where(row.id.in_(newest.order_by(*order).limit(limit))).order_by(*order)
    return bodies(connection, wanted, Attributed)


def exam(connection: Connection, *, reported: bool, limit: int) -> list[Attributed]:
    """The newest `limit` production trajectories that are held out, newest first, fair to parties (`newest`).

    However few outcomes there are: what is counted is what is returned, not what is looked through.
    """
    row = t.TrajectoryRow
    wanted = select(row.id, row.tenant, row.caller).where(row.source == "production", row.attributed)
    if reported:
        wanted = wanted.where(row.outcome.is_not(None))
    found: list[str] = []

    def parties() -> Iterator[str]:
        for one in connection.execute(wanted.order_by(row.ended.desc(), row.id.desc()).limit(_SCANNED)):
            if held_out(one.id):
                found.append(one.id)
                yield party_of(one.tenant, one.caller)

    ids = [found[place] for place in newest(parties(), limit, _BEYOND)] if limit > 0 else []
    read: dict[str, Attributed] = {}
    for part in chunks(ids):
        read |= {one.id: one for one in bodies(connection, select(row.body).where(row.id.in_(part)), Attributed)}
    return [read[key] for key in ids if key in read]


def recent_closed(connection: Connection, limit: int) -> list[Trajectory]:
    """Production trajectories, newest first, attributed or not."""
    row = t.TrajectoryRow
    wanted = select(row.body).where(row.source == "production").order_by(row.ended.desc(), row.id).limit(limit)
    return _runs(connection, wanted)


def _runs(connection: Connection, statement: Select[Any]) -> list[Trajectory]:
    """The trajectories in the `body` column of `statement`, without their credit."""
    found = [decode(body) for body in connection.scalars(statement)]
    both = [one.trajectory if isinstance(one, Attributed) else one for one in found]
    return [run for run in both if isinstance(run, Trajectory)]


def unused(connection: Connection, limit: int) -> list[Attributed]:
    """Attributed trajectories with an outcome that neither a batch used nor the curator dropped: the newest `limit`,
    oldest first."""
    row = t.TrajectoryRow
    wanted = select(row.body).where(
        row.attributed, row.batch_id == "", row.dropped == "", row.outcome.is_not(None)
    )  # fmt: skip
    return bodies(connection, wanted.order_by(row.ended.desc(), row.id.desc()).limit(limit), Attributed)[::-1]


def unreported(connection: Connection, after: tuple[float, str], limit: int) -> list[Attributed]:
    """The same without an outcome, those that come after (end, id), oldest first: there may be thousands of them."""
    row = t.TrajectoryRow
    ended, key = after
    wanted = (
        select(row.body)
        .where(
            row.attributed, row.batch_id == "", row.dropped == "", row.outcome.is_(None),
            (row.ended > ended) | ((row.ended == ended) & (row.id > key)),
        )
        .order_by(row.ended, row.id)
        .limit(limit)
    )  # fmt: skip
    return bodies(connection, wanted, Attributed)


def settled(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Those of the trajectories `ids` that a batch used or the curator dropped."""
    row, found = t.TrajectoryRow, set[str]()
    for part in chunks(list(ids)):
        done = select(row.id).where(row.id.in_(part), (row.batch_id != "") | (row.dropped != ""))
        found.update(connection.scalars(done))
    return found


def recent_outcomes(
    connection: Connection,
    *,
    source: str | None = None,
    since: float = 0.0,
    limit: int = 100,
    until: float | None = None,
) -> list[OutcomeRow]:
    """Trajectories that ended from `since` on, and before `until`, newest first, those without an outcome included."""
    row = t.TrajectoryRow
    return _newest(
        connection, limit, row.ended >= since,
        *([] if source is None else [row.source == source]), *([] if until is None else [row.ended < until]),
    )  # fmt: skip


def judged_outcomes(
    connection: Connection, version: int, *, since: float = 0.0, limit: int = 100, until: float | None = None
) -> list[OutcomeRow]:
    """As `recent_outcomes`: production trajectories that `version` alone sampled and that have an outcome."""
    row = t.TrajectoryRow
    return _newest(
        connection, limit, row.source == "production", row.outcome.is_not(None), row.max_version == version,
        row.min_version == version, row.ended >= since, *([] if until is None else [row.ended < until]),
    )  # fmt: skip


def reporting_parties(connection: Connection, limit: int) -> list[str]:
    """The parties of the newest production trajectories that have an outcome, one a trajectory, newest first."""
    row = t.TrajectoryRow
    wanted = select(row.tenant, row.caller).where(row.source == "production", row.outcome.is_not(None))
    found = connection.execute(wanted.order_by(row.ended.desc(), row.id).limit(limit))
    return [party_of(one.tenant, one.caller) for one in found]


def _newest(connection: Connection, limit: int, *where: ColumnElement[bool]) -> list[OutcomeRow]:
    row = t.TrajectoryRow
    wanted = select(
        row.id, row.ended, row.outcome, row.min_version, row.max_version, row.cluster, row.goal, row.revision
    ).where(*where)
    found = connection.execute(wanted.order_by(row.ended.desc(), row.id).limit(limit))
    return [OutcomeRow(**one._asdict()) for one in found]


def failed_calls(
    connection: Connection, since: float, limit: int = 1000, *, until: float | None = None
) -> list[FailedCall]:
    """Calls with a status of 500 or more that began from `since` on, and before `until`, oldest first."""
    row = t.ExchangeRow
    wanted = (
        select(row.body)
        .where(row.trajectory_id == "", ~row.stitched, row.started >= since, row.status >= 500)
        .order_by(row.started, row.id)
        .limit(limit)
    )
    if until is not None:
        wanted = wanted.where(row.started < until)
    return [
        FailedCall(call.id, call.engine, call.hints.trajectory_id or call.hints.conversation or call.id, call.started)
        for call in bodies(connection, wanted, Exchange)
    ]


def closed_runs(connection: Connection, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
    """The trajectories `ids`, each with the engine that answered its first call (empty if nobody knows)."""
    row = t.TrajectoryRow
    runs: list[Trajectory] = []
    for part in chunks(list(ids)):
        runs += _runs(connection, select(row.body).where(row.id.in_(part)).order_by(row.id))
    first = {run.steps[0].exchange_id: run.id for run in runs if run.steps and run.min_version < 0}
    engines: dict[str, str] = {}
    for part in chunks(sorted(first)):
        calls = bodies(connection, select(t.ExchangeRow.body).where(t.ExchangeRow.id.in_(part)), Exchange)
        engines |= {first[call.id]: call.engine for call in calls}
    return [(run, engines.get(run.id, "")) for run in runs]


def experiences(connection: Connection, state: str | None = None) -> list[Experience]:
    """The latest revision of each lesson, those in `state` if it is given, by last change, newest first."""
    row = t.ExperienceRow
    last = select(row.id, func.max(row.revision).label("revision")).group_by(row.id).subquery()
    wanted = select(row.body).join(last, (row.id == last.c.id) & (row.revision == last.c.revision))
    if state is not None:
        wanted = wanted.where(row.state == state)
    return bodies(connection, wanted.order_by(row.updated.desc(), row.id), Experience)


def revisions_of(connection: Connection, experience_id: str) -> list[Experience]:
    """All that a lesson was, newest first; empty if there is none."""
    row = t.ExperienceRow
    return bodies(connection, select(row.body).where(row.id == experience_id).order_by(row.revision.desc()), Experience)


def candidates(connection: Connection, limit: int = 100) -> list[Candidate]:
    """Weight versions, highest first."""
    row = t.CandidateRow
    return bodies(connection, select(row.body).order_by(row.version.desc(), row.created.desc()).limit(limit), Candidate)


def head(connection: Connection) -> Candidate | None:
    """What the learner said last of where it stands: the version that it made, or went back to."""
    row = t.CandidateRow
    # Answers to skipped orders have the time of the version that they name, so they stand beside it and not before.
    newest = select(row.body).order_by(row.created.desc(), row.version.desc()).limit(_ANSWERS)
    found = bodies(connection, newest, Candidate)
    return next((candidate for candidate in found if candidate.answer in ("trained", "went_back")), None)


def verdicts(connection: Connection, limit: int = 100) -> list[Verdict]:
    """What the gate said, newest first."""
    row = t.VerdictRow
    return bodies(connection, select(row.body).order_by(row.created.desc(), row.version.desc()).limit(limit), Verdict)


def servings(connection: Connection, engine: str | None = None, limit: int = 100) -> list[Serving]:
    """What engines were made to serve, newest first, refusals included."""
    row = t.ServingRow
    wanted = select(row.body)
    if engine is not None:
        wanted = wanted.where(row.engine == engine)
    return bodies(connection, wanted.order_by(row.since.desc(), row.id).limit(limit), Serving)


def last_serving(connection: Connection, engine: str) -> Serving | None:
    """What `engine` was last made to serve; a swap that was refused or rolled back left what was there."""
    return next((one for one in servings(connection, engine) if one.result in ("started", "swapped")), None)


def directives(connection: Connection, limit: int = 100) -> list[Directive]:
    """Directives, newest first."""
    row = t.DirectiveRow
    return bodies(connection, select(row.body).order_by(row.created.desc(), row.id).limit(limit), Directive)


def frozen(connection: Connection) -> bool:
    """Whether the last freeze or thaw was a freeze."""
    row = t.DirectiveRow
    wanted = select(row.kind).where(row.kind.in_(("freeze", "thaw"))).order_by(row.created.desc(), row.id)
    return connection.scalar(wanted.limit(1)) == "freeze"


def batches(connection: Connection, limit: int = 100) -> list[BatchOrder]:
    """Orders, newest first."""
    row = t.BatchRow
    return bodies(connection, select(row.body).order_by(row.created.desc(), row.id).limit(limit), BatchOrder)


def outstanding(connection: Connection) -> BatchOrder | None:
    """The newest order, if no candidate names it yet."""
    latest = batches(connection, 1)
    if not latest:
        return None
    done = select(t.CandidateBatchRow.batch_id).where(t.CandidateBatchRow.batch_id == latest[0].id).limit(1)
    return None if connection.scalar(done) else latest[0]


def dead_letters(connection: Connection, limit: int = 100) -> list[DeadRow]:
    """Parked records, newest first."""
    row = t.DeadLetterRow
    size = func.length(row.data).label("size")
    wanted = select(row.id, row.actor, row.input_id, row.subject, size, row.error, row.at)
    found = connection.execute(wanted.order_by(row.at.desc(), row.id).limit(limit))
    return [DeadRow(**one._asdict()) for one in found]


def counts(connection: Connection) -> dict[str, int]:
    """What there is of everything; one key a figure."""

    def total(row: type[t.Base], *where: Any) -> int:
        return connection.scalar(select(func.count()).select_from(row).where(*where)) or 0

    def grouped(column: Any, prefix: str) -> dict[str, int]:
        found = connection.execute(select(column, func.count()).where(column != "").group_by(column)).all()
        return {prefix + str(row[0]).replace(" ", "_"): int(row[1]) for row in found}

    run, call = t.TrajectoryRow, t.ExchangeRow
    return {
        "exchanges": total(call),
        "exchanges_open": total(call, call.trajectory_id == "", call.stitched),
        "exchanges_failed": total(call, call.status >= 400),
        "feedback": total(t.FeedbackRow),
        "feedback_waiting": total(t.FeedbackRow, t.FeedbackRow.joined == ""),
        "batches": total(t.BatchRow),
        "versions": connection.scalar(select(func.count(t.CandidateRow.version.distinct()))) or 0,
        "experiences": connection.scalar(select(func.count(t.ExperienceRow.id.distinct()))) or 0,
        "dead_letters": total(t.DeadLetterRow),
        "outbox": total(t.OutboxRow, t.OutboxRow.published.is_(False)),
        **grouped(run.source, "trajectories_"),
        **grouped(run.dropped, "dropped_"),
    }
