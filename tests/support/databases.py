"""A store for as long as a test needs it, and its database from beside it: SQL of the test's own, whichever it is."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import create_engine, text

from actors.store import Store


@asynccontextmanager
async def opened_store(url: str, clock: Callable[[], float] = time.time) -> AsyncIterator[Store]:
    """The store at `url`, closed in the end."""
    store = Store(url, clock=clock)
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


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
