"""Databases of older versions, brought up to date in place: what is missing is added, nothing is taken away.

A column that is new has a default in its table's definition, so that old rows have a value; an older evolved does not
open the database any more (`SchemaMismatch`).
"""

from sqlalchemy import Connection, inspect, select
from sqlalchemy.schema import CreateColumn

from actors.messages import Feedback, decode
from actors.store import tables as t
from actors.store.audit import catch_up
from actors.store.waiting import note


def upgrade(connection: Connection, now: float) -> None:
    """Add the columns and indexes that the tables lack, note what feedback waits for, and chain what no audit entry
    tells of yet. May be done again."""
    inspector = inspect(connection)
    for table in t.Base.metadata.sorted_tables:
        there = {column["name"] for column in inspector.get_columns(table.name)}
        name = connection.dialect.identifier_preparer.format_table(table)
        for column in table.columns:
            if column.name not in there:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {definition}")
        indexed = {index["name"] for index in inspector.get_indexes(table.name)}
        for index in table.indexes:
            if index.name not in indexed:
                index.create(connection)
    row = t.FeedbackRow
    waiting = [decode(body) for body in connection.scalars(select(row.body).where(row.joined == ""))]
    note(connection, [said for said in waiting if isinstance(said, Feedback)])
    catch_up(connection, now)
