"""The store from beside the daemon that owns it: read-only, record by record, in the order of their times.

Ids first, bodies in small reads after them: no transaction lives long enough to keep the daemon's log from being folded
back into the database, and memory holds ids and one page.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from actors.messages import Message, decode
from actors.store import tables as t
from actors.store.engine import chunks, located, open_read_only
from actors.store.errors import StoreUnavailable
from actors.store.schema import check

Kind = Literal["trajectories", "exchanges", "feedback"]
_PAGE = 500
R = TypeVar("R")
_ROWS: dict[Kind, tuple[type[Any], Any]] = {
    "trajectories": (t.TrajectoryRow, t.TrajectoryRow.ended),
    "exchanges": (t.ExchangeRow, t.ExchangeRow.started),
    "feedback": (t.FeedbackRow, t.FeedbackRow.received),
}
"""Where the records of a kind are, and the time that they are found by."""


class Archive:
    """Records of one kind in a time span."""

    def __init__(
        self, url: str, kind: Kind, *, since: float | None = None, until: float | None = None,
        tenant: str | None = None, password_file: str = "",
    ) -> None:  # fmt: skip
        """Reads the ids of what ended (calls: began; feedback: came) from `since` on, and before `until`."""
        self._url, self._password_file = url, password_file
        self._row, time = _ROWS[kind]
        wanted = select(self._row.id).order_by(time, self._row.id)
        if since is not None:
            wanted = wanted.where(time >= since)
        if until is not None:
            wanted = wanted.where(time < until)
        if tenant is not None:
            wanted = wanted.where(self._row.tenant == tenant)
        self._ids = ask(url, lambda connection: connection.scalars(wanted).all(), password_file)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Message]:
        """The records; one that is gone by now is left out."""
        row = self._row
        for part in chunks(self._ids, _PAGE):
            wanted = select(row.id, row.body).where(row.id.in_(part))
            bodies = ask(self._url, lambda c, wanted=wanted: {k: b for k, b in c.execute(wanted)}, self._password_file)
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
    except DBAPIError as error:
        raise StoreUnavailable(f"{located(engine)}: {error.orig}") from error
    finally:
        engine.dispose()
