"""What the store promises beyond SQLite, and across versions of itself."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from actors.messages import Feedback, Hints, encode
from actors.store import SchemaMismatch, Store
from actors.store.tables import Base
from tests.support.traffic import exchange

VERSION_1 = """
CREATE TABLE exchanges (id VARCHAR NOT NULL PRIMARY KEY, tenant VARCHAR NOT NULL, response_id VARCHAR NOT NULL,
  explicit VARCHAR NOT NULL, trajectory_id VARCHAR NOT NULL, started FLOAT NOT NULL, status INTEGER NOT NULL,
  stitched BOOLEAN NOT NULL, late BOOLEAN NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX uq_exchanges_response ON exchanges (tenant, response_id) WHERE response_id <> '';
CREATE INDEX ix_exchanges_open ON exchanges (trajectory_id, stitched, started);
CREATE INDEX ix_exchanges_explicit ON exchanges (tenant, explicit);
CREATE TABLE feedback (id VARCHAR NOT NULL PRIMARY KEY, tenant VARCHAR NOT NULL, received FLOAT NOT NULL,
  joined VARCHAR NOT NULL, body BLOB NOT NULL);
CREATE INDEX ix_feedback_joined ON feedback (joined);
CREATE TABLE trajectories (id VARCHAR NOT NULL PRIMARY KEY, source VARCHAR NOT NULL, tenant VARCHAR NOT NULL,
  goal TEXT NOT NULL, outcome FLOAT, cluster VARCHAR NOT NULL, group_id VARCHAR NOT NULL, min_version INTEGER NOT NULL,
  max_version INTEGER NOT NULL, started FLOAT NOT NULL, ended FLOAT NOT NULL, closed_by VARCHAR NOT NULL,
  trainable BOOLEAN NOT NULL, why_not VARCHAR NOT NULL, attributed BOOLEAN NOT NULL, batch_id VARCHAR NOT NULL,
  dropped VARCHAR NOT NULL, body BLOB NOT NULL);
CREATE INDEX ix_trajectories_recent ON trajectories (source, ended);
CREATE INDEX ix_trajectories_pool ON trajectories (attributed, batch_id, dropped, ended);
CREATE TABLE state ("key" VARCHAR NOT NULL PRIMARY KEY, value BLOB NOT NULL);
INSERT INTO state VALUES ('store.schema', CAST('1' AS BLOB));
"""
"""What the tables that have changed since looked like."""


@pytest.mark.anyio
async def test_a_database_of_the_first_version_opens_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "evolved.db"
    call = exchange("a", 0)
    waiting = Feedback(id="f", received=5.0, response_id="r-default-b-0", outcome=1.0)
    with sqlite3.connect(path) as old:
        old.executescript(VERSION_1)
        row = (call.id, call.tenant, call.response_id, "", "", 100.0, 200, True, False, encode(call))
        old.execute(f"INSERT INTO exchanges VALUES ({','.join('?' * len(row))})", row)
        old.execute("INSERT INTO feedback VALUES (?, ?, ?, '', ?)", ("f", "default", 5.0, encode(waiting)))
    old.close()
    found = [call.id]
    for number in range(2):
        store = Store(f"sqlite:///{path}", clock=lambda: 0.0)
        await store.open()
        assert [one.id for one in await store.open_exchanges()] == found
        assert [one.id for one in await store.unjoined_feedback()] == ["f"]
        assert (await store.counts())["feedback_late"] == 0
        assert await store.state_get("store.schema") == b"5"
        named = exchange(f"c{number}", 0, hints=Hints(custom_id="order-1"))
        await store.save([named])
        found.append(named.id)
        await store.aclose()


@pytest.mark.anyio
async def test_an_upgraded_database_looks_like_a_new_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.executescript(VERSION_1)
    old.close()
    shapes = []
    for name in ("old", "new"):
        store = Store(f"sqlite:///{tmp_path}/{name}.db", clock=lambda: 0.0)
        await store.open()
        await store.aclose()
        with sqlite3.connect(tmp_path / f"{name}.db") as made:
            tables = [row[0] for row in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = {t: {row[1:4] for row in made.execute(f"PRAGMA table_info({t})")} for t in tables}
            indexes = set(made.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
        made.close()
        shapes.append((columns, {index for index, _ in indexes}))
    assert shapes[0] == shapes[1]


@pytest.mark.anyio
async def test_a_newer_schema_is_refused(store_url: str) -> None:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    await store.state_put("store.schema", b"99")
    with pytest.raises(SchemaMismatch, match="99"):
        await store.open()
    await store.aclose()


def test_tables_compile_for_postgresql() -> None:
    for table in Base.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))
        for index in table.indexes:
            assert "INDEX" in str(CreateIndex(index).compile(dialect=postgresql.dialect()))


def test_memory_database_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="must be a file"):
        Store("sqlite://", clock=lambda: 0.0)
