"""A real nats-server for tests, and buses on it."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from actors.system.broker import Broker, BrokerSettings
from actors.system.metrics import SystemMetrics
from actors.system.nats_bus import NatsBus
from actors.system.nats_client import NatsSettings
from actors.system.runtime import Host
from actors.system.streams import STREAMS, Stream

QUICK = NatsSettings(reconnect_wait=0.05, answer_seconds=1.0, connect_seconds=3.0, publish_attempts=3, ack_wait=0.6)
"""Deadlines that suit a broker on the same machine."""


@contextlib.asynccontextmanager
async def running_broker(directory: Path, **settings: object) -> AsyncIterator[Broker]:
    """A broker with its files in `directory`, stopped at the end."""
    broker = Broker(directory / "broker", BrokerSettings(**settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def opened_bus(
    host: Host,
    broker: Broker,
    directory: Path,
    *,
    settings: NatsSettings = QUICK,
    streams: Sequence[Stream] = STREAMS,
    metrics: SystemMetrics | None = None,
) -> AsyncIterator[NatsBus]:
    """A bus on `broker`, closed at the end."""
    login = broker.credentials
    bus = NatsBus(
        host, login.url, claims=directory / "claims", user=login.user, password=login.password, settings=settings,
        streams=streams, metrics=metrics,
    )  # fmt: skip
    await bus.open()
    try:
        yield bus
    finally:
        await bus.aclose()


async def kill(broker: Broker) -> None:
    """kill -9, and take notice of the end."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    await broker.wait()
    await broker.stop()
