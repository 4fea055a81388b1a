"""`NatsBus`: the bus over NATS JetStream, for actors on either backend.

A thin shell: each call crosses to the host loop once, with a whole batch, where `nats_client` and `nats_pull` do the
work.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from actors.system.bus import Delivery, Depth, Outgoing, Tail
from actors.system.claim_check import ClaimStore
from actors.system.errors import BusMisconfigured
from actors.system.metrics import SystemMetrics
from actors.system.nats_access import NatsAccess
from actors.system.nats_client import NatsClient, NatsSettings, remove_durables
from actors.system.nats_pull import NatsPull
from actors.system.runtime import Host
from actors.system.streams import STREAMS, Stream, by_stream

_DURABLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class NatsBus:
    """A `Bus`. `open` it first, `aclose` it last."""

    def __init__(
        self,
        host: Host,
        access: NatsAccess | str,
        *,
        claims: Path,
        user: str = "",
        password: str = "",
        name: str = "evolved",
        settings: NatsSettings | None = None,
        streams: Sequence[Stream] = STREAMS,
        metrics: SystemMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """
        Args:
            host: the way to the loop that nats-py lives on.
            access: where the servers are and how to get in, or just `nats://host:port`, with `user` and `password`.
            claims: directory shared by all processes for payloads above the broker's limit.
            user: with `password`, as the broker wants them; empty for none.
            name: this connection's name in the broker's monitoring.
            settings: deadlines and windows.
            streams: to be created, or brought to their definitions, by `open`.
            metrics: counts disconnects, reconnects, failed attempts and retries.
            rng: for the jitter between attempts to reconnect.
        """
        self._host, self._name, self._rng = host, name, rng or random.Random()
        self._access = NatsAccess((access,), user=user, password=password) if isinstance(access, str) else access
        self._settings = settings or NatsSettings()
        self._streams = tuple(streams)
        self._claims = ClaimStore(claims)
        self._metrics = metrics
        self._client: NatsClient | None = None
        self._pulls: dict[str, list[NatsPull]] = {}

    @property
    def ack_wait(self) -> float:
        return self._settings.ack_wait

    async def open(self) -> None:
        """Connect and make sure of the streams.

        Raises:
            BusUnavailable: no broker within `connect_seconds`; may be called again.
            BusRefused: the servers do not let us in, or not as the settings say; waiting cures nothing.
            BusMisconfigured: a stream cannot be had as defined.
        """
        await self._host(self._open)

    async def _open(self) -> None:
        if self._client is None:
            metrics = self._metrics
            self._client = NatsClient(
                self._access,
                name=self._name,
                settings=self._settings,
                streams=self._streams,
                claims=self._claims,
                on_disconnect=lambda: metrics.bus_disconnects.inc() if metrics else None,
                on_reconnect=lambda: metrics.bus_reconnects.inc() if metrics else None,
                on_retry=lambda records: metrics.bus_retries.inc(records) if metrics else None,
                on_failure=lambda reason: metrics.bus_failures.labels(reason).inc() if metrics else None,
                rng=self._rng,
            )
        await self._client.ensure_streams()

    def _opened(self) -> NatsClient:
        if self._client is None:
            raise BusMisconfigured("the bus was not opened")
        return self._client

    async def publish(self, items: Sequence[Outgoing]) -> None:
        await self._host(self._opened().publish, items)

    def tail(self, subject: str) -> Tail:
        return self._opened().tail(subject)

    def remember(self, subject: str, sequence: int) -> None:
        self._opened().remember(subject, sequence)

    async def subscribe(self, durable: str, subjects: Sequence[str]) -> "NatsSubscription":
        if not durable or not set(durable) <= _DURABLE:
            raise BusMisconfigured(f"durable name {durable!r}: letters, digits, - and _ only")
        pull = NatsPull(self._opened(), durable, by_stream(subjects, self._streams))
        await self._host(pull.open)
        self._pulls.setdefault(durable, []).append(pull)
        return NatsSubscription(self._host, pull, lambda: self._forget(durable, pull))

    def _forget(self, durable: str, pull: NatsPull) -> None:
        if pull in self._pulls.get(durable, ()):
            self._pulls[durable].remove(pull)

    async def depth(self) -> Mapping[str, Depth]:
        return {durable: await self._host(pulls[0].depth) for durable, pulls in list(self._pulls.items()) if pulls}

    async def sweep_claims(self, now: float) -> int:
        """Delete payload files that no stream can point to any more; returns how many."""
        oldest = max(stream.max_age or float("inf") for stream in self._streams)
        return await self._host(asyncio.to_thread, self._claims.sweep, now - oldest)

    async def rewind(self, spared: Collection[str]) -> int:
        """Remove all durables but `spared` and those of work queues, which `subscribe` then makes anew, from the first
        record on; returns how many. To be called before anybody subscribes.
        """
        streams = [stream.name for stream in self._streams if not stream.queue]
        return await self._host(remove_durables, self._opened(), streams, spared)

    async def aclose(self) -> None:
        await self._host(self._close)

    async def _close(self) -> None:
        # At once: a broker that does not answer costs each of them a second.
        await asyncio.gather(*(pull.close() for pulls in self._pulls.values() for pull in pulls))
        self._pulls.clear()
        if self._client is not None:
            await self._client.close()


class NatsSubscription:
    """A `Subscription` of `NatsBus`."""

    def __init__(self, host: Host, pull: NatsPull, on_close: Callable[[], None]) -> None:
        self._host, self._pull, self._on_close = host, pull, on_close
        self._closed = False

    async def fetch(self, n: int, timeout: float) -> list[Delivery]:
        return await self._host(self._pull.fetch, n, timeout)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        await self._host(self._pull.ack, deliveries)

    async def nak(self, deliveries: Sequence[Delivery], delay: float = 0.0) -> None:
        await self._host(self._pull.nak, deliveries, delay)

    async def in_progress(self, deliveries: Sequence[Delivery]) -> None:
        await self._host(self._pull.in_progress, deliveries)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._on_close()
            await self._host(self._pull.close)
