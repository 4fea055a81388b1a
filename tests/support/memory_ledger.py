"""A `Ledger` in memory."""

from collections.abc import Sequence

import msgspec

from actors.messages import Message
from actors.system.outgoing import Outgoing


class Parked(msgspec.Struct, frozen=True):
    """A dead letter in `MemoryLedger`."""

    actor: str
    input_id: str
    subject: str
    data: bytes
    error: str


class MemoryLedger:
    """A `Ledger` in memory for tests: transactions are atomic because nothing in them awaits."""

    def __init__(self) -> None:
        self.done: set[tuple[str, str]] = set()
        self.records: dict[tuple[str, str], Message] = {}
        """By (type name, record id); the latest one stands."""
        self.outbox: dict[tuple[str, str], Outgoing] = {}
        """By (actor, output id), in the order of commit."""
        self.sent: set[tuple[str, str]] = set()
        self.parked: list[Parked] = []
        self.edits = 0

    async def processed(self, actor: str, ids: Sequence[str]) -> set[str]:
        return {input_id for input_id in ids if (actor, input_id) in self.done}

    async def commit(
        self, actor: str, inputs: Sequence[str], records: Sequence[Message], outputs: Sequence[Outgoing]
    ) -> Sequence[Outgoing] | None:
        keys = {(actor, input_id) for input_id in inputs}
        if keys & self.done:
            return None
        self.done |= keys
        for record in records:
            self.records[type(record).__name__, record.id] = record
        for output in outputs:
            self.outbox.setdefault((actor, output.id), output)
        return outputs

    async def unpublished(self, actor: str, limit: int) -> list[Outgoing]:
        waiting = [output for key, output in self.outbox.items() if key[0] == actor and key not in self.sent]
        return waiting[:limit]

    async def published(self, actor: str, ids: Sequence[str]) -> None:
        self.sent |= {(actor, output_id) for output_id in ids}

    async def park(self, actor: str, input_id: str, subject: str, data: bytes, error: str) -> bool:
        if (actor, input_id) in self.done:
            return False
        self.done.add((actor, input_id))
        self.parked.append(Parked(actor, input_id, subject, data, error))
        return True
