"""Writes the database of an older evolved, by that evolved's own code, and dumps it as SQL.

    git archive COMMIT actors adapters | tar x -C /tmp/old
    cd /tmp/old && PYTHONPATH=/tmp/old python .../tests/unit/actors/store/past/make.py schema-3.sql

The dumps beside this file were made so, of these commits:

    schema-1  007db40   schema-2  986316b   schema-3  e06a3ab   schema-3-judgements  0fde3a0
    schema-3-embeddings  f1f3075   schema-4-first  b14c20d   schema-4-embeddings  921ca25   schema-4  bc4b2f1
    schema-5-first  9ed9e31   schema-5  8a56ac9   schema-7  36fc55f   schema-8  0242ef0   schema-9  cb3b884

No commit had schema 6.
"""

import asyncio
import inspect
import sqlite3
import sys
import tempfile
from pathlib import Path

from actors import messages as m
from actors.store import Joined, Store
from actors.system.bus import outgoing


def records() -> list[m.Message]:
    """Two calls with their run, feedback that has its place and feedback that waits, a lesson, a task, an order, a
    version that was judged, served and taken back."""
    calls = [
        m.Exchange(
            id=f"x-{n}", tenant="acme", endpoint="/v1/chat/completions", started=100.0 + n, duration=0.5, status=200,
            request=b'{"n": %d}' % n, response=b"{}", response_id=f"r-{n}",
        )
        for n in range(3)
    ]  # fmt: skip
    steps = tuple(m.Step(exchange_id=call.id, response_id=call.response_id, text="did it") for call in calls[:2])
    run = m.Trajectory(id="run", tenant="acme", goal="find it", steps=steps, started=100.0, ended=102.0)
    labels = (m.StepLabel("GOOD"), m.StepLabel("BAD"))
    credited = m.Attributed(
        id=run.id, trajectory=run, attribution=m.Attribution(labels=labels, judge="rules", rubric="1"), cluster="find"
    )
    return [
        *calls,
        run,
        credited,
        m.Feedback(id="f-joined", tenant="acme", received=103.0, response_id="r-0", outcome=1.0),
        m.Feedback(id="f-waiting", tenant="acme", received=104.0, response_id="r-9", outcome=0.0),
        Joined(id="f-joined", trajectory_id="run", outcome=1.0),
        m.Experience(id="lesson", tenant="acme", when_to_use="searching", content="look twice", sources=("run",),
                     state="active", updated=105.0),
        m.Task(id="task", goal="find it again", environment="travel"),
        m.BatchOrder(id="order", path="/gone/order.msgpack", sha256="0" * 64, size=10, trajectories=("run",),
                     production=1, created=106.0),
        m.Candidate(id="candidate", version=1, parent=0, path="/gone/v000001", files=(), manifest="1" * 64,
                    batch_ids=("order",), created=107.0),
        m.Verdict(id="verdict", version=1, path="/gone/v000001", manifest="1" * 64, incumbent=0, decision="promote",
                  reason="better", created=108.0),
        m.Serving(id="serving", engine="serving", version=1, previous=0, path="/gone/v000001", result="swapped",
                  since=109.0),
        m.Directive(id="directive", kind="freeze", reason="to look", origin="control", created=110.0),
    ]  # fmt: skip


async def write(path: Path) -> None:
    """All of it, and a ledger with a mark, an output on its way, a failure and a parked record."""
    store = Store(f"sqlite:///{path}", clock=lambda: 1000.0)
    await store.open()
    for record in records():
        await store.save([record])
    sent = records()[0]
    await store.commit("assembler", ["traffic.exchange:x-0"], [], [outgoing("traffic.exchange", sent)])
    await store.failed("assembler", "traffic.exchange:x-1", "it broke")
    await store.park("assembler", "traffic.exchange:x-2", "traffic.exchange", b"unreadable", "it broke thrice")
    await store.state_put("assembler/mark", b"here")
    if hasattr(m, "Opinion"):
        given = {"id": "opinion", "experience_id": "lesson", "key": "k", "useful": True, "created": 111.0}
        known = set(inspect.signature(m.Opinion).parameters)
        await store.say(m.Opinion(**{name: value for name, value in given.items() if name in known}), "it helped")
    if hasattr(store, "save_embeddings"):
        await store.save_embeddings("hashing", 2, {"digest": b"\0" * 8})
    if hasattr(store, "keep_judgements"):
        from actors.store.judgements import Judgement

        await store.keep_judgements([Judgement(key="judged", tenant="acme", body=b"good")], [], {})
    if tombstone := getattr(store, "tombstone", None) or getattr(store, "entomb", None):
        from actors.store.erasing import Scope, Selector

        await tombstone(Selector(trajectories=("gone",)), Scope(trajectories=("gone",)))
    await store.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(write(Path(directory) / "evolved.db"))
        with sqlite3.connect(Path(directory) / "evolved.db") as made:
            Path(sys.argv[1]).write_text("\n".join(made.iterdump()) + "\n")
        made.close()
