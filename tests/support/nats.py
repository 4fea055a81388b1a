"""A real nats-server for tests, and buses on it."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread

from actors.system.access import Access
from actors.system.broker import Credentials, prepare, read_credentials
from actors.system.bus import Bus
from actors.system.errors import BusUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.runtime import Host
from actors.system.streams import STREAMS, Stream
from tests.support.patience import until
from tests.support.process import Process, listens

T = TypeVar("T")


async def same_loop(afn: Callable[..., Awaitable[T]], *args: object, **kwargs: object) -> T:
    """The `Host` of a test that runs on asyncio itself."""
    return await afn(*args, **kwargs)


class Broker:
    """The server that `evolved broker` becomes, as a child of the test."""

    def __init__(self, directory: Path, **settings: int) -> None:
        self.directory, self._settings = directory, settings
        self._process: Process | None = None

    @property
    def credentials(self) -> Credentials:
        return read_credentials(self.directory / "credentials.json")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Until it takes clients."""
        self._process = Process(prepare(self.directory, **self._settings), self.directory / "output", env={})
        port = self.credentials.port
        await until(lambda: anyio.to_thread.run_sync(listens, port), "the broker listens")

    async def stop(self) -> None:
        if self._process is not None:
            await anyio.to_thread.run_sync(self._process.stop)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()


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
    host: Host | Callable[..., Awaitable[Any]],
    broker: Broker,
    directory: Path,
    *,
    streams: Sequence[Stream] = STREAMS,
    metrics: SystemMetrics | None = None,
    answer_seconds: float = 10.0,
    ack_wait: float = 30.0,
) -> AsyncIterator[Bus]:
    """A bus on `broker`, closed at the end. It opens however short its deadlines are; without any it is patient: the
    broker is on this machine, which may be slow."""
    bus = Bus(
        host, login(broker), claims=directory / "claims", streams=streams, metrics=metrics,
        answer_seconds=answer_seconds, ack_wait=ack_wait,
    )  # fmt: skip
    await persistently(bus.open)
    try:
        yield bus
    finally:
        await bus.aclose()


def login(broker: Broker) -> Access:
    """The way into `broker`."""
    told = broker.credentials
    return Access(servers=(told.url,), user=told.user, password=told.password)


async def persistently(call: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """What `call` answers, asked again until the broker is there, as the runner does."""
    answers: list[T] = []

    async def answered() -> bool:
        with contextlib.suppress(BusUnavailable):
            answers.append(await call(*arguments))
        return bool(answers)

    await until(answered, f"the broker answers {call.__name__}")
    return answers[0]
