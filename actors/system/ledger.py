"""The ledger: what makes at-least-once delivery count once. A port; `actors.store` implements it on SQL.

For each actor it remembers which inputs are done, keeps the outputs until the bus has them (outbox) and holds
parked records.

Any method may raise `DependencyUnavailable` when the database is away; the caller waits and calls again.
"""

from collections.abc import Sequence
from typing import Protocol

from actors.messages import Message
from actors.system.outgoing import Outgoing


class Ledger(Protocol):
    """Ids of inputs are `outgoing.delivery_id(subject, message)`; every method is safe to repeat."""

    async def processed(self, actor: str, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that `actor` is done with: committed, or parked."""
        ...

    async def commit(
        self, actor: str, inputs: Sequence[str], records: Sequence[Message], outputs: Sequence[Outgoing]
    ) -> Sequence[Outgoing] | None:
        """In one transaction: mark `inputs` processed, save `records`, put `outputs` in the outbox; what to publish.

        That is `outputs` without those that rest on something forgotten, and what follows from the records. If any of
        `inputs` was processed before, nothing at all is written and the answer is None. With no inputs (a tick, a
        producer) it always writes. Outputs whose id the outbox of `actor` has or had are left as they were.
        """
        ...

    async def unpublished(self, actor: str, limit: int) -> list[Outgoing]:
        """The oldest outputs of `actor` not marked published, in the order of their commit, at most `limit`."""
        ...

    async def published(self, actor: str, ids: Sequence[str]) -> None:
        """The bus has these outputs (`Outgoing.id`); the ids are kept, the bytes need not be."""
        ...

    async def park(self, actor: str, input_id: str, subject: str, data: bytes, error: str) -> None:
        """In one transaction: keep the record as a dead letter, and mark it processed.

        Putting it back by hand takes the mark away again and publishes `data` on `subject`.
        """
        ...
