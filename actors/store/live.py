"""What happens right now, engine by engine: for whoever watches a canary."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, select

from actors.messages import Attributed, Exchange, Trajectory, decode
from actors.ports.store import FailedCall
from actors.store import tables as t
from actors.store.engine import chunks
from actors.store.reading import bodies


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
        for call in _exchanges(connection, wanted)
    ]


def closed_runs(connection: Connection, ids: Sequence[str]) -> list[tuple[Trajectory, str]]:
    """The trajectories `ids`, each with the engine that answered its first call (empty if nobody knows)."""
    row = t.TrajectoryRow
    runs: list[Trajectory] = []
    for part in chunks(list(ids)):
        found = [decode(body) for body in connection.scalars(select(row.body).where(row.id.in_(part)).order_by(row.id))]
        both = [one.trajectory if isinstance(one, Attributed) else one for one in found]
        runs += [run for run in both if isinstance(run, Trajectory)]
    first = {run.steps[0].exchange_id: run.id for run in runs if run.steps and run.min_version < 0}
    engines: dict[str, str] = {}
    for part in chunks(sorted(first)):
        calls = _exchanges(connection, select(t.ExchangeRow.body).where(t.ExchangeRow.id.in_(part)))
        engines |= {first[call.id]: call.engine for call in calls}
    return [(run, engines.get(run.id, "")) for run in runs]


def _exchanges(connection: Connection, wanted: Select[Any]) -> list[Exchange]:
    return bodies(connection, wanted, Exchange)
