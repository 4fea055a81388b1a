"""Questions on runs, their calls and what was said of them, as functions of a connection."""

from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, func, select, text, update

from actors.kinds.holdout import held_out
from actors.messages import Attributed, Exchange, Feedback, Trajectory, decode
from actors.ports.store import OutcomeRow
from actors.statistics.parties import newest, party_of
from actors.store import tables as t
from actors.store.columns import among, lookup
from actors.store.tables import Calls, Reports, Runs

T = TypeVar("T")
_SCANNED = 100_000
"""Newest production trajectories that the gate's evidence is looked for among, by id alone."""
_BEYOND = 5_000
"""Of those chosen, so many are looked at beyond the newest that would suffice, for parties that were pushed back."""


def bodies(connection: Connection, statement: Select[Any], kind: type[T]) -> list[T]:
    """The decoded `body` column of `statement`, those that are of `kind`."""
    found = map(decode, connection.scalars(statement))
    return [message for message in found if isinstance(message, kind)]


def open_exchanges(connection: Connection, limit: int = 20_000) -> list[Exchange]:
    """Calls that are in no closed trajectory yet, oldest first, the newest `limit` of them."""
    wanted = select(Calls.body).where(Calls.trajectory_id == "", Calls.stitched)
    return bodies(connection, wanted.order_by(Calls.started.desc(), Calls.id.desc()).limit(limit), Exchange)[::-1]


def exchanges(connection: Connection, ids: Sequence[str]) -> list[Exchange]:
    """Calls by id, those that are still kept."""
    return bodies(connection, select(Calls.body).where(among(Calls.id, ids)).order_by(Calls.id), Exchange)


def step_feedback(connection: Connection, runs: Sequence[Trajectory]) -> dict[str, list[tuple[int, Feedback]]]:
    """What was said of single steps of `runs`: by trajectory, the step that each report means (by its number, or an
    id of its call) and the report, oldest first. Runs of whose steps nobody said anything are left out."""
    told: dict[str, list[Feedback]] = {}
    wanted = select(Reports.joined, Reports.body).where(among(Reports.joined, (run.id for run in runs)))
    for joined, body in connection.execute(wanted.order_by(Reports.received, Reports.id)):
        said = decode(body)
        if isinstance(said, Feedback) and said.kind == "step" and said.outcome is not None:
            told.setdefault(joined, []).append(said)
    return {run.id: _steps_meant(connection, run, told[run.id]) for run in runs if run.id in told}


def _steps_meant(connection: Connection, run: Trajectory, told: list[Feedback]) -> list[tuple[int, Feedback]]:
    by_call = {step.exchange_id: number for number, step in enumerate(run.steps)}
    by_response = {step.response_id: number for number, step in enumerate(run.steps)}
    # A caller that gives an id twice means the newer call.
    calls = select(Calls.custom_id, Calls.id).where(Calls.trajectory_id == run.id, Calls.custom_id != "", ~Calls.beside)
    by_custom = {custom: by_call.get(key) for custom, key in connection.execute(calls.order_by(Calls.started))}
    meant: list[tuple[int, Feedback]] = []
    for said in told:
        names = (by_call, said.exchange_id), (by_response, said.response_id), (by_custom, lookup(said.custom_id))
        numbers = (places.get(name) for places, name in names if name)
        number = next((one for one in numbers if one is not None), None) if said.step is None else said.step
        if number is not None and number < len(run.steps):
            meant.append((number, said))
    return meant


def find_trajectory(connection: Connection, feedback: Feedback, *, beside: bool = False) -> str | None:
    """Id of the trajectory that `feedback` means, empty while that is open; None if there is none.

    Ids that callers make up may come again: the newest trajectory that had begun when the feedback came is meant; of
    one that several keys of a tenant name, that of its own key.

    Args:
        beside: it names a call beside the main line, and not one of its steps.
    """
    mine = Calls.tenant == feedback.tenant, Calls.stitched, Calls.beside.is_(beside)
    newest = (Calls.started <= feedback.received).desc(), Calls.started.desc()
    calls = select(Calls.trajectory_id).where(*mine).order_by(*newest)
    keys = select(Calls.caller).where(*mine, Calls.explicit == lookup(feedback.trajectory_id)).distinct().limit(2)
    own = select(Runs.id).where(Runs.tenant == feedback.tenant)
    several = bool(feedback.trajectory_id) and len(connection.scalars(keys).all()) > 1
    theirs = calls.where(Calls.caller == feedback.caller) if several else calls
    tries = (
        (calls, Calls.id, feedback.exchange_id), (calls, Calls.response_id, feedback.response_id),
        (calls, Calls.custom_id, feedback.custom_id), (theirs, Calls.explicit, feedback.trajectory_id),
        (own, Runs.id, feedback.trajectory_id),
    )  # fmt: skip
    wanted = (question.where(column == lookup(name)).limit(1) for question, column, name in tries if name)
    return next((found for one in wanted if (found := connection.scalar(one)) is not None), None)


def calls_beside(connection: Connection, limit: int) -> list[tuple[str, str, str]]:
    """The newest calls beside a main line: (call, tenant, trajectory)."""
    wanted = select(Calls.id, Calls.tenant, Calls.trajectory_id).where(text("beside")).order_by(Calls.started.desc())
    return [(call, tenant, run) for call, tenant, run in connection.execute(wanted.limit(limit))]


def trajectory(connection: Connection, trajectory_id: str) -> Attributed | Trajectory | None:
    """The trajectory, with its credit once it has some."""
    body = connection.scalar(select(Runs.body).where(Runs.id == trajectory_id))
    message = None if body is None else decode(body)
    return message if isinstance(message, Attributed | Trajectory) else None


def recent_attributed(connection: Connection, *, source: str | None = None, limit: int = 100) -> list[Attributed]:
    """Attributed trajectories, newest first."""
    order, newest = (Runs.ended.desc(), Runs.id), select(Runs.id).where(Runs.attributed)
    if source is not None:
        newest = newest.where(Runs.source == source)
    newest = newest.order_by(*order).limit(limit)
    # By id first: sorted with their bodies, all that there are would be read.
    return bodies(connection, select(Runs.body).where(Runs.id.in_(newest)).order_by(*order), Attributed)


def exam(connection: Connection, *, reported: bool, limit: int) -> list[Attributed]:
    """The newest `limit` production trajectories that are held out, newest first, fair to parties (`newest`)."""
    wanted = select(Runs.id, Runs.tenant, Runs.caller).where(Runs.source == "production", Runs.attributed)
    if reported:
        wanted = wanted.where(Runs.outcome.is_not(None))
    rows = connection.execute(wanted.order_by(Runs.ended.desc(), Runs.id.desc()).limit(_SCANNED))
    held = list(islice((row for row in rows if held_out(row.id)), limit + _BEYOND))
    places = newest((party_of(row.tenant, row.caller) for row in held), limit, _BEYOND)
    ids = [held[place].id for place in places]
    read = {one.id: one for one in bodies(connection, select(Runs.body).where(among(Runs.id, ids)), Attributed)}
    return [read[key] for key in ids if key in read]


def recent_closed(connection: Connection, limit: int) -> list[Trajectory]:
    """Production trajectories, newest first, attributed or not."""
    newest = select(Runs.body).where(Runs.source == "production").order_by(Runs.ended.desc(), Runs.id)
    return _without_credit(connection, newest.limit(limit))


def _without_credit(connection: Connection, statement: Select[Any]) -> list[Trajectory]:
    found = map(decode, connection.scalars(statement))
    both = (one.trajectory if isinstance(one, Attributed) else one for one in found)
    return [run for run in both if isinstance(run, Trajectory)]


_UNUSED = (Runs.attributed, Runs.batch_id == "", Runs.came == "")


def unused(connection: Connection, after: tuple[float, str], limit: int) -> list[Attributed]:
    """Attributed trajectories that neither a batch used nor the curator dropped, those that come after (end, id),
    oldest first: there may be thousands of them."""
    ended, key = after
    later = (Runs.ended > ended) | ((Runs.ended == ended) & (Runs.id > key))
    wanted = select(Runs.body).where(*_UNUSED, later).order_by(Runs.ended, Runs.id).limit(limit)
    return bodies(connection, wanted, Attributed)


def still_unused(connection: Connection, ids: Sequence[str]) -> list[Attributed]:
    """Those of these ids that `unused` has."""
    return bodies(connection, select(Runs.body).where(*_UNUSED, Runs.id.in_(ids)), Attributed)


def drop_unused(connection: Connection, room: int, reason: str, *, reported: bool = True) -> int:
    """Drop what `unused` has, with an outcome or not `reported`, beyond the newest `room`; how many that are. Of those
    that ended at the same moment as the last that has room, all are left."""
    alike = (*_UNUSED, Runs.outcome.is_not(None) if reported else Runs.outcome.is_(None))
    newest = select(Runs.ended).where(*alike).order_by(Runs.ended.desc()).limit(1)
    last = connection.scalar(newest.offset(max(0, room - 1)))
    if last is None:
        return 0
    return connection.execute(update(Runs).where(*alike, Runs.ended < last).values(came=reason)).rowcount


def recent_outcomes(
    connection: Connection, *, source: str = "production", version: int | None = None, since: float = 0.0,
    until: float = inf, limit: int = 100,
) -> list[OutcomeRow]:  # fmt: skip
    """Trajectories that ended from `since` on, and before `until`, newest first, those without an outcome included; of
    a `version` those that it alone sampled and that have one."""
    columns = (getattr(Runs, name) for name in OutcomeRow.__struct_fields__)
    wanted = select(*columns).where(Runs.source == source, Runs.ended >= since, Runs.ended < until)
    if version is not None:
        wanted = wanted.where(Runs.max_version == version, Runs.min_version == version, Runs.outcome.is_not(None))
    found = connection.execute(wanted.order_by(Runs.ended.desc(), Runs.id).limit(limit))
    return [OutcomeRow(**one._asdict()) for one in found]


def reporting_parties(connection: Connection, limit: int) -> list[str]:
    """The parties of the newest production trajectories that have an outcome, one a trajectory, newest first."""
    wanted = select(Runs.tenant, Runs.caller).where(Runs.source == "production", Runs.outcome.is_not(None))
    return [party_of(*one) for one in connection.execute(wanted.order_by(Runs.ended.desc(), Runs.id).limit(limit))]


def lost_runs(connection: Connection, since: float, limit: int = 1000, *, until: float = inf) -> set[tuple[str, str]]:
    """(engine, run) of calls with a status of 500 or more that began from `since` on, and before `until`; the run that
    they named, else the call itself: a client that tries again fails once."""
    open_ones = Calls.trajectory_id == "", ~Calls.stitched, Calls.started >= since, Calls.started < until
    wanted = select(Calls.body).where(*open_ones, Calls.status >= 500).order_by(Calls.started, Calls.id).limit(limit)
    found = bodies(connection, wanted, Exchange)
    return {(call.engine, call.hints.trajectory_id or call.hints.conversation or call.id) for call in found}


def closed_runs(connection: Connection, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
    """The trajectories `ids`, each with the engine that answered its first call (empty if nobody knows)."""
    runs = _without_credit(connection, select(Runs.body).where(among(Runs.id, ids)).order_by(Runs.id))
    first = {run.steps[0].exchange_id: run.id for run in runs if run.steps and run.min_version < 0}
    engines = {first[call.id]: call.engine for call in exchanges(connection, list(first))}
    return [(run, engines.get(run.id, "")) for run in runs]


def reported(connection: Connection, ids: Sequence[str]) -> list[tuple[Attributed | Trajectory, float | None]]:
    """Those of `ids` that are production's and have an outcome, each with when that was reported, unix seconds, if it
    was after the run's end."""
    wanted = among(Runs.id, ids), Runs.source == "production", Runs.outcome.is_not(None)
    found = ((decode(row.body), row.told) for row in connection.execute(select(Runs.body, Runs.told).where(*wanted)))
    return [(run, told) for run, told in found if isinstance(run, Attributed | Trajectory)]


def counts(connection: Connection) -> dict[str, int]:
    """What there is of everything; one key a figure."""

    def total(table: type[t.Base], *where: Any) -> int:
        return connection.scalar(select(func.count()).select_from(table).where(*where)) or 0

    def grouped(column: Any, prefix: str, *where: Any) -> dict[str, int]:
        found = connection.execute(select(column, func.count()).where(column != "", *where).group_by(column))
        return {f"{prefix}{name.replace(' ', '_')}": number for name, number in found}

    return {
        "exchanges": total(Calls),
        "exchanges_open": total(Calls, Calls.trajectory_id == "", Calls.stitched),
        "exchanges_failed": total(Calls, Calls.status >= 400),
        "feedback": total(Reports),
        "feedback_waiting": total(Reports, Reports.joined == ""),
        "batches": total(t.Batches),
        "versions": connection.scalar(select(func.count(t.Candidates.version.distinct()))) or 0,
        "experiences": connection.scalar(select(func.count(t.Lessons.id.distinct()))) or 0,
        "dead_letters": total(t.DeadLetters),
        "outbox": total(t.Outbox, t.Outbox.published.is_(False)),
        **grouped(Runs.source, "trajectories_"),
        **grouped(Runs.came, "dropped_", Runs.batch_id == ""),
    }
