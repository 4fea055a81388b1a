"""The way out: commit, publish, mark, with the patience that outages ask for.

What makes at-least-once delivery count once is the ledger: for each actor it remembers which inputs are done, keeps
the outputs until the bus has them, and holds parked records.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
import structlog

from actors.messages import Message
from actors.system.lifecycle import Lifecycle
from actors.system.outgoing import Outgoing, outgoing
from actors.system.patience import Patience

_log = structlog.get_logger(__name__)
_FLUSH = 256
"""Records published at a time."""


class Output(msgspec.Struct, frozen=True):
    """A message to publish once the result is committed."""

    subject: str
    message: Message


class Result(msgspec.Struct, frozen=True):
    """What handling a batch, or a tick, came to."""

    records: Sequence[Message] = ()
    """To be saved by the store, in the same transaction as the outputs and the marks of the inputs."""
    outputs: Sequence[Output] = ()


class Ledger(Protocol):
    """`actors.store.Store`. Every method is safe to repeat, and raises `DependencyUnavailable` while the database is
    away."""

    edits: int
    """How often people changed what actors keep in memory: forgot a tenant, revised a lesson."""

    async def processed(self, actor: str, ids: Sequence[str]) -> set[str]:
        """Those of `ids` (`outgoing.delivery_id`) that `actor` is done with: committed, or parked."""
        ...

    async def commit(
        self, actor: str, inputs: Sequence[str], records: Sequence[Message], outputs: Sequence[Outgoing]
    ) -> Sequence[Outgoing] | None:
        """In one transaction: mark `inputs` processed, save `records`, put `outputs` in the outbox. Returns what to
        publish: `outputs` without those that rest on something forgotten, and what follows from the records. None, and
        nothing written, if any of `inputs` was processed before."""
        ...

    async def unpublished(self, actor: str, limit: int) -> list[Outgoing]:
        """The oldest outputs of `actor` not marked published, in the order of their commit."""
        ...

    async def published(self, actor: str, ids: Sequence[str]) -> None:
        """The bus has these outputs (`Outgoing.id`)."""
        ...

    async def park(self, actor: str, input_id: str, subject: str, data: bytes, error: str) -> bool:
        """In one transaction: keep the record as a dead letter, and mark it processed; False if it was before."""
        ...


class Outbox(Patience):
    """One task's way out, and all that a producer gets from the system."""

    def __init__(
        self, name: str, publish: Callable[[Sequence[Outgoing]], Awaitable[None]], ledger: Ledger,
        lifecycle: Lifecycle, *, rng: random.Random,
    ) -> None:  # fmt: skip
        super().__init__(lifecycle, _log.bind(actor=name), rng=rng)
        self.name, self.ledger, self._publish = name, ledger, publish

    async def emit(self, result: Result) -> None:
        """Commit `result` and publish its outputs, with the guarantees that a handler's result has. When draining
        begins during an outage it raises `Drained`: let it pass; what was committed goes out after the next start."""
        await self.commit((), result)

    async def begin(self, start: Callable[[], Awaitable[None]]) -> None:
        """Rebuild the memory, and let out what an earlier life committed: the task is ready."""
        await self.insist(start)
        await self.flush()
        self.begun = True
        self.lifecycle.ready()

    async def commit(self, inputs: Sequence[str], result: Result) -> bool:
        """Commit, then publish; False if an input was processed elsewhere meanwhile."""
        outputs = [outgoing(output.subject, output.message) for output in result.outputs]
        records = tuple(result.records)
        if not (inputs or outputs or records):
            return True
        attempts = 0

        async def once() -> Sequence[Outgoing] | None:
            nonlocal attempts
            attempts += 1
            return await self.ledger.commit(self.name, inputs, records, outputs)

        written = await self.insist(once)
        if written is None:
            return False
        await self._send(written)
        if attempts > 1:
            # One of them may have been written and its answer lost: what followed from its records is in the outbox.
            await self.flush()
        return True

    async def flush(self) -> None:
        """Publish what was committed and did not get out."""
        while items := await self.insist(lambda: self.ledger.unpublished(self.name, _FLUSH)):
            self.log.info("outbox_flushed", outputs=len(items))
            await self._send(items)

    async def _send(self, outputs: Sequence[Outgoing]) -> None:
        for start in range(0, len(outputs), _FLUSH):
            part = outputs[start : start + _FLUSH]
            await self.insist(lambda part=part: self._publish(part))
            await self.insist(lambda part=part: self.ledger.published(self.name, [item.id for item in part]))
