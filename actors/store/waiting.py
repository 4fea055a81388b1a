"""Feedback whose trajectory is not known yet: found by the ids that it names, when a call with one comes and when a
trajectory with one is written.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlalchemy import Connection, or_, select

from actors.messages import Exchange, Feedback, Trajectory
from actors.store.columns import among, lookup
from actors.store.records import Joined
from actors.store.runs import bodies, find_trajectory
from actors.store.tables import Calls, Reports

NAMES = {
    "trajectory_id": Calls.explicit, "custom_id": Calls.custom_id, "response_id": Calls.response_id,
    "exchange_id": Calls.id,
}  # fmt: skip
"""What feedback names while it waits, and where calls have it; of two that mean different trajectories the later."""


def named(said: Feedback) -> dict[str, str | None]:
    """What `said` names, by column."""
    return {name: lookup(value) if (value := getattr(said, name)) else None for name in NAMES}


def waiting(connection: Connection, calls: Iterable[str]) -> Iterator[str]:
    """Ids of feedback that waits and names one of `calls`."""
    mine = among(Calls.id, calls)
    for name, column in NAMES.items():
        same = (getattr(Reports, name) == column) & (Reports.tenant == Calls.tenant)
        yield from connection.scalars(select(Reports.id).join(Calls, same).where(mine, column != ""))


def feedback_for(connection: Connection, calls: Sequence[Exchange], limit: int) -> list[Feedback]:
    """Feedback that waits and names one of `calls`, written or not: the newest `limit`, maybe some of other tenants."""
    told = {
        Reports.trajectory_id: (call.hints.trajectory_id or call.hints.conversation for call in calls),
        Reports.custom_id: (call.hints.custom_id for call in calls),
        Reports.response_id: (call.response_id for call in calls),
        Reports.exchange_id: (call.id for call in calls),
    }
    meant = or_(*(among(column, {lookup(value) for value in values if value}) for column, values in told.items()))
    return bodies(
        connection, select(Reports.body).where(meant).order_by(Reports.received.desc()).limit(limit), Feedback
    )


def place(connection: Connection, said: Feedback) -> Joined | None:
    """Where `said` belongs, and the outcome that it tells; None if nothing that it means has closed.

    What names a call beside the main line alone says nothing of how the run went: who rates a title does not rate the
    work.
    """
    outcome = said.outcome if said.whole else None
    run = find_trajectory(connection, said)
    if run is None:
        run, outcome = find_trajectory(connection, said, beside=True), None
    return Joined(id=said.id, trajectory_id=run, outcome=outcome) if run else None


def claimed(
    connection: Connection, runs: Sequence[Trajectory], beside: Sequence[str], heard: Collection[str]
) -> list[Joined]:
    """The feedback that waited for one of `runs`, or for one of the calls `beside` them, all of which are written: what
    says most of an outcome first."""
    runs = [run for run in runs if run.source == "production"]
    if not runs:
        return []
    own = connection.scalars(select(Reports.id).where(among(Reports.trajectory_id, (run.id for run in runs))))
    found = {*own, *waiting(connection, [*beside, *(step.exchange_id for run in runs for step in run.steps)])}
    wanted = select(Reports.body).where(among(Reports.id, found - set(heard))).order_by(Reports.id)
    # The first outcome is what a trajectory takes over: a final one before others, the newest before older ones.
    reports = sorted(
        bodies(connection, wanted, Feedback),
        key=lambda said: (said.kind == "outcome" and said.final, said.final, said.received), reverse=True,
    )  # fmt: skip
    return [joined for said in reports if (joined := place(connection, said)) is not None]
