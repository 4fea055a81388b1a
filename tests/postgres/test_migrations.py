"""A PostgreSQL database of the first schema, with rows, becomes what a new one is."""

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Boolean, Connection, inspect

from actors.store import SchemaMismatch, Store, migrations
from actors.store.archive import ask
from actors.store.audit import verify
from actors.store.engine import open_engine
from actors.store.migrations import migrate
from actors.store.settings import StoreSettings
from actors.store.tables import SCHEMA_VERSION, Base
from tests.support.postgres import Cluster
from tests.unit.actors.store.test_migrations import everything_is_there, written

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_on_postgresql_an_older_database_with_rows_becomes_what_a_new_one_is(
    postgres: Cluster, tmp_path: Path
) -> None:
    """The rows that an evolved of schema 1 wrote, in a PostgreSQL database of schema 1: the number it left is all that
    says so. Each later schema is on the way."""
    name = postgres.create(empty=True)
    url = postgres.url(name)
    engine = open_engine(url, StoreSettings())
    with engine.execution_options(writing=True).begin() as connection:
        migrate(connection, 0.0, "0001")
        connection.exec_driver_sql("DROP TABLE alembic_version")
        connection.exec_driver_sql("DELETE FROM state")
        copied(sqlite3.connect(written("schema-1", tmp_path).removeprefix("sqlite:///")), connection)
    stores = [Store(url, clock=lambda: 0.0) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for store in stores:
            group.start_soon(store.open)
    assert {store.audit_head.sequence for store in stores} == {4}
    await everything_is_there(stores[0], 1)
    assert ask(url, verify).problem == ""
    with engine.connect() as connection:
        assert (
            compare_metadata(MigrationContext.configure(connection, opts={"compare_type": False}), Base.metadata) == []
        )
        migrated = postgresql_shape(connection)
        assert migrations.check(connection) == SCHEMA_VERSION
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0099'")
        connection.commit()
    with pytest.raises(SchemaMismatch, match="schema 99"):
        await stores[0].open()
    for store in stores:
        await store.aclose()
    engine.dispose()
    fresh = open_engine(postgres.url(postgres.create(empty=True)), StoreSettings())
    with fresh.execution_options(writing=True).begin() as connection:
        migrate(connection, 0.0)
        assert [new ^ old for new, old in zip(postgresql_shape(connection), migrated, strict=True)] == [set(), set()]
    fresh.dispose()
    postgres.drop(name)


def postgresql_shape(connection: Connection) -> tuple[set[Any], set[Any]]:
    """Columns with types, order of text and defaults; indexes as PostgreSQL would write them down."""
    columns = connection.exec_driver_sql(
        "SELECT table_name, column_name, data_type, collation_name, is_nullable, "
        "replace(split_part(column_default, '::', 1), '''', '') "
        "FROM information_schema.columns WHERE table_schema = 'public'"
    )
    indexes = connection.exec_driver_sql("SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'")
    return set(columns.all()), {row.indexdef for row in indexes}


def copied(old: sqlite3.Connection, new: Connection) -> None:
    """All rows of `old`."""
    for (table,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'sqlite_sequence'"):
        kinds = {column["name"]: column["type"] for column in inspect(new).get_columns(table)}
        rows = old.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in rows.description]
        for row in rows.fetchall():
            values = [
                bool(value) if isinstance(kinds[name], Boolean) else value
                for name, value in zip(names, row, strict=True)
            ]
            marks, listed = ", ".join(["%s"] * len(names)), ", ".join(f'"{name}"' for name in names)
            new.exec_driver_sql(f"INSERT INTO {table} ({listed}) VALUES ({marks})", tuple(values))
        if "sequence" in kinds and table == "outbox":
            new.exec_driver_sql("SELECT setval('outbox_sequence_seq', (SELECT max(sequence) FROM outbox))")
    old.close()
