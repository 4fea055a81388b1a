"""What the store promises beyond SQLite."""

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from actors.store import Store
from actors.store.tables import Base


def test_tables_compile_for_postgresql() -> None:
    for table in Base.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))
        for index in table.indexes:
            assert "INDEX" in str(CreateIndex(index).compile(dialect=postgresql.dialect()))


def test_memory_database_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="must be a file"):
        Store("sqlite://", clock=lambda: 0.0)
