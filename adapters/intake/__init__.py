"""Ways in: where calls of production agents come from.

Whatever the way (the tap's spool, OTLP spans, a JSONL file), what comes out are the same `Exchange`s, so nothing after
this point knows or cares.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from actors.messages import Exchange


class Intake(Protocol):
    """A source of calls."""

    name: str
    """Stands in metrics."""

    def exchanges(self) -> AsyncIterator[Exchange]:
        """Calls in the order in which they ended; ends when the source has ended.

        The same call has the same record id whenever it is read again. A call that cannot be read comes as an
        `Exchange` with `error` set.
        """
        ...


__all__ = ["Exchange", "Intake"]
