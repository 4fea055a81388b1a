"""A real nats-server for tests, and buses on it."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from actors.system.broker import Broker
from actors.system.errors import BusUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.nats_bus import NatsBus
from actors.system.nats_client import NatsSettings
from actors.system.runtime import Host
from actors.system.streams import STREAMS, Stream
from tests.support.patience import until

T = TypeVar("T")
PATIENT = NatsSettings(reconnect_wait=0.05, answer_seconds=10.0, connect_seconds=30.0, publish_attempts=3)
"""For a broker on this machine, which may be slow. A test that wants a deadline to strike sets its own."""


@contextlib.asynccontextmanager
async def running_broker(directory: Path, store_bytes: int = 16 << 30, **settings: int) -> AsyncIterator[Broker]:
    """A broker with its files in `directory`, stopped at the end."""
    broker = Broker(directory / "broker", store_bytes=store_bytes, **settings)
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
    settings: NatsSettings = PATIENT,
    streams: Sequence[Stream] = STREAMS,
    metrics: SystemMetrics | None = None,
) -> AsyncIterator[NatsBus]:
    """A bus on `broker`, closed at the end. It opens however short the deadlines in `settings` are."""
    login = broker.credentials
    bus = NatsBus(
        host, login.url, claims=directory / "claims", user=login.user, password=login.password, settings=settings,
        streams=streams, metrics=metrics,
    )  # fmt: skip
    await persistently(bus.open)
    try:
        yield bus
    finally:
        await bus.aclose()


async def persistently(call: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """What `call` answers, asked again until the broker is there, as the runner does."""
    answers: list[T] = []

    async def answered() -> bool:
        with contextlib.suppress(BusUnavailable):
            answers.append(await call(*arguments))
        return bool(answers)

    await until(answered, f"the broker answers {call.__name__}")
    return answers[0]


async def kill(broker: Broker) -> None:
    """kill -9, and take notice of the end."""
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    await broker.wait()
    await broker.stop()
