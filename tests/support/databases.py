"""A store's database from beside it: SQL of a test's own, whichever database it is."""

from typing import Any

from sqlalchemy import create_engine, text


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What a query answers."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]
    finally:
        engine.dispose()


def change(url: str, *statements: str, **values: Any) -> list[int]:
    """Run `statements` in one transaction; how many rows each changed."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            return [connection.execute(text(statement), values).rowcount for statement in statements]
    finally:
        engine.dispose()
