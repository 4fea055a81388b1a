"""Publishing to JetStream a window at a time: all records go out, then their confirmations are waited for together.

nats-py's `publish` is a request with a future, a timer and a task switch of its own for every record; here one
subscription takes all confirmations of a connection, and a window has one event and one deadline.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError

from actors.system.nats_failures import CONNECTION_ERRORS


class Record(msgspec.Struct, frozen=True):
    """What goes out for one record."""

    subject: str
    data: bytes
    headers: dict[str, str]


class Stored(msgspec.Struct, frozen=True):
    """A confirmation: the record is in `stream`."""

    stream: str = ""
    seq: int = 0
    """Its number there; that of its first coming, if it is a duplicate."""
    duplicate: bool = False


class _Answer(Stored, frozen=True):
    """JetStream's PubAck, as it stands on the wire."""

    error: dict[str, Any] | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


class _Window:
    """Records in the air."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.done = asyncio.Event()
        self.outcomes: list[Exception | Stored] = [TimeoutError("no confirmation")] * size

    def settle(self, place: int, outcome: Exception | Stored) -> None:
        self.outcomes[place] = outcome
        self.left -= 1
        if not self.left:
            self.done.set()


class Confirmations:
    """Takes JetStream's answers on one connection."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._prefix = client.new_inbox()
        self._waiting: dict[str, tuple[_Window, int]] = {}
        self._numbers = itertools.count()

    async def listen(self) -> None:
        """Subscribe; once, before the first window."""
        await cast(Any, self.client).subscribe(f"{self._prefix}.*", cb=self._receive)

    async def publish(self, records: Sequence[Record], seconds: float) -> list[Exception | Stored]:
        """Publish a window.

        Returns:
            For each record its confirmation, or why there is none: `TimeoutError`, `APIError`, another of nats-py's
            errors.
        """
        window = _Window(len(records))
        tokens: list[str] = []
        try:
            for place, record in enumerate(records):
                token = f"{self._prefix}.{next(self._numbers)}"
                tokens.append(token)
                self._waiting[token] = (window, place)
                try:
                    await self.client.publish(record.subject, record.data, reply=token, headers=record.headers)
                except CONNECTION_ERRORS as error:
                    del self._waiting[token]
                    window.settle(place, error)
            if window.left:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(window.done.wait(), seconds)
        finally:
            for token in tokens:
                self._waiting.pop(token, None)
        return window.outcomes

    async def _receive(self, message: Msg) -> None:
        found = self._waiting.pop(message.subject, None)
        if found is None:
            return
        window, place = found
        window.settle(place, _outcome(message))


def _outcome(message: Msg) -> Exception | Stored:
    if message.headers and message.headers.get("Status") == "503":
        return nats.errors.NoRespondersError()
    try:
        answer = _ANSWER.decode(message.data)
    except msgspec.DecodeError as problem:
        return nats.errors.Error(f"no confirmation: {problem}")
    if answer.error is None:
        return answer
    return APIError(
        code=answer.error.get("code"),
        description=answer.error.get("description"),
        err_code=answer.error.get("err_code"),
    )
