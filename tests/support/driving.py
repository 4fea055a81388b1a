"""Drives an actor as the runner does, one step at a time, so that a test can stop between any two of them."""

from collections.abc import Sequence

from actors.messages import Message, decode
from actors.store import Store
from actors.system.actor import Actor, Received, Result
from actors.system.outgoing import delivery_id, outgoing


class Driver:
    """An actor with a store behind it."""

    def __init__(self, actor: Actor, store: Store) -> None:
        self.actor, self.store = actor, store
        self.out: list[Message] = []
        """What was committed to be published."""

    async def feed(self, subject: str, *messages: Message, commit: bool = True) -> list[Message]:
        """Deliver `messages` as one batch, those that were not processed before; returns the outputs."""
        keys = {delivery_id(subject, message): message for message in messages}
        seen = await self.store.processed(self.actor.name, list(keys))
        batch = [Received(key, subject, message) for key, message in keys.items() if key not in seen]
        if not batch:
            return []
        result = await self.actor.handle(batch)
        return await self.commit([item.id for item in batch], result) if commit else []

    async def tick(self) -> list[Message]:
        """One tick; returns the outputs."""
        return await self.commit((), await self.actor.tick())

    async def commit(self, inputs: Sequence[str], result: Result) -> list[Message]:
        outputs = [outgoing(output.subject, output.message) for output in result.outputs]
        written = await self.store.commit(self.actor.name, inputs, result.records, outputs)
        assert written is not None
        messages = [decode(item.data) for item in written]
        self.out += messages
        return messages
