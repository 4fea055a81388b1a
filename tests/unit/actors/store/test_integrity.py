"""What is broken is named, with a remedy; what may be missing by design is not."""

import sqlite3
from pathlib import Path

import pytest

from actors.messages import BatchOrder, Candidate, Directive, Feedback, Step, Task
from actors.store import Joined, Store, StoreUnavailable
from actors.store.archive import ask
from actors.store.integrity import Finding, check, pages
from tests.support.credited import attributed
from tests.support.traffic import exchange, feedback

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(store_url: str) -> str:
    """A store with a run, its calls and its feedback, a batch that it is in, a version, and an order."""
    store = Store(store_url, clock=lambda: 1000.0)
    await store.open()
    calls = [exchange("a", number) for number in range(2)]
    run = attributed("run", steps=tuple(Step(exchange_id=call.id) for call in calls), source="production")
    said, waiting = feedback("a", 1), Feedback(id="waiting", received=1.0, response_id="r-never")
    order = BatchOrder(id="order", path="", sha256="", size=0, trajectories=("run",), created=2.0)
    version = Candidate(id="c", version=1, parent=0, path="", files=(), manifest="", batch_ids=("order",), created=3.0)
    stop = Directive(id="d", kind="freeze", reason="to look", origin="control", created=4.0)
    await store.offer([Task(id="task", goal="g", environment="fake")])
    await store.save([*calls, run, said, waiting, Joined(id=said.id, trajectory_id="run"), order, version, stop])
    await store.aclose()
    return store_url


def found(url: str) -> list[str]:
    told = ask(url, lambda connection: check(connection, None, lambda _: None))
    assert all(finding.remedy for finding in told.findings)
    return [finding.what for finding in told.findings]


async def test_a_sound_store_has_no_findings_and_its_rows_are_counted(url: str) -> None:
    told = ask(url, lambda connection: check(connection, None, lambda _: None))
    assert told.findings == ()
    assert (told.rows["exchanges"], told.rows["trajectories"], told.rows["audit"]) == (2, 1, 2)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM directives", "audit trail: entry 2: its record is gone: directive d"),
        (
            "UPDATE feedback SET body = {broken} WHERE id <> 'waiting'",
            "feedback: bodies that cannot be read",
        ),
    ],
)
async def test_what_was_changed_by_hand_is_named(url: str, statement: str, named: str) -> None:
    store = Store(url, clock=lambda: 0.0)
    broken = "CAST('broken' AS BLOB)" if url.startswith("sqlite") else "'broken'"
    await store.change(lambda connection: connection.exec_driver_sql(statement.replace("{broken}", broken)))
    await store.aclose()
    assert any(what.startswith(named) for what in found(url))


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """An SQLite file of many pages, without a log beside it."""
    path = tmp_path / "pages.db"
    store = Store(f"sqlite:///{path}", clock=lambda: 0.0)
    await store.open()
    await store.save([exchange("b", number) for number in range(80)])
    assert await store.fold()
    await store.aclose()
    return path


async def test_a_byte_that_changed_in_the_file_is_seen_by_the_check_and_when_it_is_read(file: Path) -> None:
    url, size = f"sqlite:///{file}", 4096
    assert pages(url) == []
    with sqlite3.connect(file) as looked:
        root = looked.execute("SELECT rootpage FROM sqlite_master WHERE name = 'exchanges'").fetchone()[0]
    looked.close()
    with file.open("r+b") as raw:
        raw.seek((root - 1) * size)
        raw.write(b"\x00")  # the kind of the b-tree's root page
    (first, *_) = pages(url)
    assert isinstance(first, Finding)
    assert str(file) in first.what
    assert "db restore" in first.remedy
    store = Store(url, clock=lambda: 0.0)
    await store.open()
    with pytest.raises(StoreUnavailable, match=rf"{file} is damaged.*db restore"):
        await store.exchanges(["x-default-b-1"])
    await store.aclose()


async def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "evolved.db"
    path.write_text("this was written by something else\n" * 200)
    store = Store(f"sqlite:///{path}", clock=lambda: 0.0)
    with pytest.raises(StoreUnavailable, match=rf"{path} is damaged: file is not a database.*db restore"):
        await store.open()
    assert path.read_text().startswith("this was written")
    await store.aclose()
