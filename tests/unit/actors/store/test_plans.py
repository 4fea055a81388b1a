"""What is asked for every few seconds reads no whole table of records, however many years are in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event

from actors.messages import BatchOrder, Feedback, Step, Trajectory
from actors.store import Store, outcomes, policy, runs
from actors.store.agents import agents
from actors.store.browsing import Wanted, browse
from actors.store.engine import open_engine
from actors.store.erasing import Selector, find
from actors.store.outcomes import newest_late
from actors.store.retention import due, protected
from actors.store.stories import history, numbers, order_of, why
from actors.store.waiting import claimed, place
from tests.support.credited import candidate

pytestmark = pytest.mark.anyio
RUN = Trajectory(id="r", steps=(Step(exchange_id="x", response_id="y"),), source="production", started=0.0, ended=1.0)
ASKED: dict[str, Callable[[Connection], object]] = {
    "outcomes of a version": lambda c: runs.recent_outcomes(c, version=7, limit=384, until=5.0),
    "exam": lambda c: runs.exam(c, reported=True, limit=256),
    "versions": lambda c: (history(c, 50), numbers(c)),
    "why": lambda c: why(c, 7),
    "agents": lambda c: agents(c, 5.0),
    "page of runs": lambda c: browse(c, Wanted(tenant="t", words="w", after=(5.0, "a"))),
    "late outcomes": lambda c: newest_late(c, 5.0, 64),
    "what waited for a run": lambda c: claimed(c, [RUN], ["z"], ()),
    "whose a report is": lambda c: place(
        c, Feedback(id="f", received=1.0, trajectory_id="t", exchange_id="x", response_id="r", custom_id="u")
    ),
    "calls beside a run": lambda c: runs.calls_beside(c, 2000),
    "what is too old": lambda c: [
        due(c, kind, 5.0, 9) for kind in ("trajectories", "feedback", "exchanges", "batches")
    ],
    "what is to be forgotten": lambda c: find(c, Selector(caller="k")),
    "an answer of the learner": lambda c: outcomes.answered(
        c, candidate(1, id="c1", parent=0, batch_ids=("b",), no_gradient={"r": "no_contrast"})
    ),
    "whether an order is out": policy.outstanding,
    "what must stay": protected,
    "runs of an order": lambda c: order_of(c, "b"),
    "late outcomes of some": lambda c: runs.reported(c, ["r"]),
    "lost runs": lambda c: runs.lost_runs(c, 5.0),
    "page of a source": lambda c: browse(c, Wanted(source="production", outcome="failure", version=3)),
}
BODIES = ("exchanges", "trajectories", "feedback", "batches", "verdicts")


@pytest.fixture
async def engine(tmp_path: Path) -> Iterator[Engine]:
    url = f"sqlite:///{tmp_path}/s.db"
    store = Store(url, clock=lambda: 0.0)
    await store.open()
    await store.save([BatchOrder(id="b", path="p", sha256="d", size=1, trajectories=("r",), created=1.0)])
    await store.aclose()
    engine = open_engine(url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("name", ASKED)
async def test_what_is_asked_often_reads_indexes(engine: Engine, name: str) -> None:
    statements: list[tuple[str, tuple[object, ...]]] = []
    with engine.connect() as connection:

        @event.listens_for(connection, "before_cursor_execute")
        def note(_: object, __: object, statement: str, parameters: tuple[object, ...], *___: object) -> None:
            statements.append((statement, parameters))

        ASKED[name](connection)
        event.remove(connection, "before_cursor_execute", note)
        assert statements
        for statement, parameters in statements:
            plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            scans = [step for step in plan for table in BODIES if step == f"SCAN {table}"]
            assert scans == [], f"{statement}: {plan}"
