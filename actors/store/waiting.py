"""Feedback whose trajectory is not known yet: found by the ids that it names when a trajectory with one is written.

The assembler holds such feedback in memory, for a time and up to a number; the rest is found here.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlalchemy import Connection, select

from actors.messages import Feedback, Trajectory
from actors.store.columns import among, lookup
from actors.store.records import Joined
from actors.store.runs import bodies
from actors.store.tables import Calls, Reports, Runs

NAMES = {
    "trajectory_id": Calls.explicit, "custom_id": Calls.custom_id, "response_id": Calls.response_id,
    "exchange_id": Calls.id,
}  # fmt: skip
"""What feedback names while it waits, and where calls have it; of two that mean different trajectories the later."""


def named(said: Feedback) -> dict[str, str | None]:
    """What `said` names, by column."""
    return {name: lookup(value) if (value := getattr(said, name)) else None for name in NAMES}


def waiting(connection: Connection, calls: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Feedback that waits and names one of `calls`: its id, the call's, and the column that names it."""
    mine = among(Calls.id, calls)
    for name, column in NAMES.items():
        same = (getattr(Reports, name) == column) & (Reports.tenant == Calls.tenant)
        wanted = select(Reports.id, Calls.id).join(Calls, same).where(mine, column != "").order_by(Calls.started)
        for key, call in connection.execute(wanted):
            yield key, call, name


def claimed(connection: Connection, runs: Sequence[Trajectory], heard: Collection[str]) -> list[Joined]:
    """The feedback that waited for one of `runs`, which are written: what says most of an outcome first."""
    runs = [run for run in runs if run.source == "production"]
    if not runs:
        return []
    # Who names the trajectory means its main line.
    same = (Reports.trajectory_id == Runs.id) & (Reports.tenant == Runs.tenant) & (Runs.side_of == "")
    own = select(Reports.id, Runs.id).join(Runs, same).where(among(Runs.id, (run.id for run in runs)))
    found = {key: run for key, run in connection.execute(own)}
    by_call = {step.exchange_id: run for run in runs for step in run.steps}
    for key, call, name in waiting(connection, by_call):
        if name != "trajectory_id" or not by_call[call].side_of:
            found[key] = by_call[call].id
    wanted = select(Reports.body).where(among(Reports.id, found.keys() - set(heard))).order_by(Reports.id)
    # The first outcome is what a trajectory takes over: a final one before others, the newest before older ones.
    reports = sorted(
        bodies(connection, wanted, Feedback),
        key=lambda said: (said.kind == "outcome" and said.final, said.final, said.received), reverse=True,
    )  # fmt: skip
    whole = {said.id for said in reports if said.kind != "step" and said.step is None}
    return [
        Joined(id=said.id, trajectory_id=found[said.id], outcome=said.outcome if said.id in whole else None)
        for said in reports
    ]
