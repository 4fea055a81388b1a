"""The store from beside the daemon that owns it: read-only, record by record, in the order of their times.

Ids first, bodies in small reads after them: no transaction lives long, and memory holds ids and one page.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from actors.messages import Message, decode
from actors.store.columns import among
from actors.store.engine import chunks, located, open_read_only
from actors.store.errors import StoreUnavailable
from actors.store.schema import check
from actors.store.tables import Calls, Reports, Runs

Kind = Literal["trajectories", "exchanges", "feedback"]
_PAGE = 500
R = TypeVar("R")
_ROWS: dict[Kind, tuple[type[Any], Any]] = {
    "trajectories": (Runs, Runs.ended),
    "exchanges": (Calls, Calls.started),
    "feedback": (Reports, Reports.received),
}
"""Where the records of a kind are, and the time that they are found by."""


class Archive:
    """Records of one kind in a time span."""

    def __init__(
        self, url: str, kind: Kind, *, since: float | None = None, until: float | None = None,
        tenant: str | None = None, password_file: str = "",
    ) -> None:  # fmt: skip
        """Reads the ids of what ended (calls: began; feedback: came) from `since` on, and before `until`."""
        self._ask = partial(ask, url, password_file=password_file)
        self._table, time = _ROWS[kind]
        wanted = select(self._table.id).order_by(time, self._table.id)
        if since is not None:
            wanted = wanted.where(time >= since)
        if until is not None:
            wanted = wanted.where(time < until)
        if tenant is not None:
            wanted = wanted.where(self._table.tenant == tenant)
        self._ids = self._ask(lambda connection: connection.scalars(wanted).all())

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Message]:
        """The records; one that is gone by now is left out."""
        for part in chunks(self._ids, _PAGE):
            wanted = select(self._table.id, self._table.body).where(among(self._table.id, part))
            found = self._ask(lambda connection, wanted=wanted: connection.execute(wanted).all())
            bodies = {key: body for key, body in found}
            yield from (decode(bodies[key]) for key in part if key in bodies)


def ask(url: str, question: Callable[[Connection], R], password_file: str = "") -> R:
    """The answer of `question`, a function of a connection that only reads.

    Raises:
        StoreUnavailable: no such database, or it cannot be read.
        SchemaMismatch: written by an evolved with other tables.
    """
    engine = open_read_only(url, password_file)
    try:
        with engine.connect() as connection:
            check(connection)
            return question(connection)
    except DBAPIError as error:  # not an outage: a missing permission, for example
        raise StoreUnavailable(f"{located(engine)}: {error.orig}") from error
    finally:
        engine.dispose()
