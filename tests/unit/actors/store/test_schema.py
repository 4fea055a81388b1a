"""One schema, known by its digest; what the store promises beyond SQLite."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from actors.messages import Candidate
from actors.store import SchemaMismatch, Store
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.schema import KEY, wanted

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE state SET value = X'3133'", "13"),  # as an evolved with migrations left it
        ("UPDATE state SET value = X'616263'", "abc"),
        ("DELETE FROM state", "without a digest"),
    ],
)
async def test_a_database_of_another_schema_is_refused_by_name_and_left_alone(
    tmp_path: Path, change: str, found: str
) -> None:
    path = tmp_path / "other.db"
    store = Store(f"sqlite:///{path}", clock=lambda: 0.0)
    await store.open()
    assert await store.state_get(KEY) == wanted().encode()
    await store.open()  # one's own opens again
    await store.aclose()
    with closing(sqlite3.connect(path)) as other:
        other.execute(change)
        other.commit()
    before = path.read_bytes()
    says = rf"{path} has schema {found}, this evolved needs {wanted()}: export .*commit fc2e5e3 .*db restore"
    with pytest.raises(SchemaMismatch, match=says):
        await store.open()
    with pytest.raises(SchemaMismatch, match=says):
        ask(f"sqlite:///{path}", verify)
    await store.aclose()
    assert path.read_bytes() == before


async def test_of_several_that_open_it_at_once_one_makes_the_tables_and_the_others_wait(tmp_path: Path) -> None:
    stores = [Store(f"sqlite:///{tmp_path}/new.db", clock=lambda: 0.0) for _ in range(4)]
    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(store.open)
    for store in stores:
        assert await store.newest(Candidate) == []
        await store.aclose()


async def test_a_store_that_was_no_wal_waits_for_who_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(f"sqlite:///{path}", clock=lambda: 0.0)
    await store.open()
    await store.aclose()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        assert other.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
        other.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(store.open)
            await anyio.sleep(0.3)
            other.execute("COMMIT")
    assert await store.newest(Candidate) == []
    await store.aclose()
