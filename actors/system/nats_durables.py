"""Durables in the broker: taking them away, so that a subscription begins at the first record again."""

from collections.abc import Collection, Sequence
from typing import Any, cast

from nats.js.errors import APIError, NotFoundError

from actors.system.errors import BusUnavailable
from actors.system.nats_client import NatsClient
from actors.system.nats_failures import CONNECTION_ERRORS, api_failure


async def remove_durables(client: NatsClient, streams: Sequence[str], spared: Collection[str]) -> int:
    """Remove the durables of `streams` but `spared`; returns how many. May be done again.

    Raises:
        BusUnavailable: the broker does not answer.
    """
    removed = 0
    try:
        js = cast(Any, await client.jetstream())
        for stream in streams:
            for consumer in await _names(js, stream):
                if consumer not in spared:
                    await js.delete_consumer(stream, consumer)
                    removed += 1
    except APIError as error:
        raise api_failure(error, "removing consumers") from error
    except CONNECTION_ERRORS as error:
        raise BusUnavailable(f"removing consumers: {error!r}") from error
    return removed


async def _names(js: Any, stream: str) -> list[str]:
    """Names of the durables of `stream`, which are a few dozen at most: one page of the broker's answer."""
    try:
        found = await js.consumers_info(stream)
    except NotFoundError:
        return []
    return [info.name for info in found]
