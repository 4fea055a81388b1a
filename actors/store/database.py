"""Transactions of the store in worker threads: many readers, one writer at a time."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection

from actors.store.engine import fold, open_engine, reading
from actors.store.leases import Lead
from actors.store.settings import CONNECTIONS

P = ParamSpec("P")
R = TypeVar("R")


class Database:
    """Runs functions of a connection, each in a transaction of its own."""

    def __init__(self, url: str, password_file: str = "") -> None:
        """Nothing is opened yet."""
        self._engine = open_engine(url, password_file)
        self._reading = reading(self._engine)
        self._writing = self._engine.execution_options(writing=True)
        self.lead: Lead | None = None
        """Each write looks whether it is still had; None for commands, which write whoever leads."""
        # Writers wait for each other before they take a thread: else a few of them would keep every reader waiting.
        self._writer, self._readers = anyio.CapacityLimiter(1), anyio.CapacityLimiter(CONNECTIONS - 1)

    async def ask(self, work: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `work` answers from one state of the database."""

        def run() -> R:
            with self._reading.connect() as connection:
                return work(connection, *args, **kwargs)

        return await anyio.to_thread.run_sync(run, limiter=self._readers)

    async def change(self, work: Callable[Concatenate[Connection, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `work` answers once all that it wrote is committed.

        Raises:
            StoreUnavailable: nothing was written; or, if the connection was lost at the very end, all of it was.
        """
        lead = self.lead

        def run() -> R:
            with self._writing.begin() as connection:
                if lead is not None:
                    lead.check(connection)
                return work(connection, *args, **kwargs)

        # Not abandoned on cancellation: a transaction half way through would keep the write lock.
        return await anyio.to_thread.run_sync(run, limiter=self._writer)

    async def fold(self) -> bool:
        """Leave nothing of what was deleted in SQLite's log; False: not yet (`actors.store.engine.fold`)."""
        return await anyio.to_thread.run_sync(fold, self._engine, limiter=self._writer)

    async def aclose(self) -> None:
        """Close the connections."""
        await anyio.to_thread.run_sync(self._engine.dispose, limiter=self._writer)
