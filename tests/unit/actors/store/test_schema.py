"""What the store promises beyond SQLite, and across versions of itself."""

from pathlib import Path

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from actors.store import SchemaMismatch, Store
from actors.store.tables import Base


@pytest.mark.anyio
async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/evolved.db", clock=lambda: 0.0)
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
