"""The shipper: from the tap's spool to the bus.

    spool -> [converter: raw records -> Exchange / Feedback] -> TRAFFIC        (unreadable records -> `dead.spool`)

It moves its cursor only over what the bus has confirmed. After a crash some records are published again, under the same
ids; streams and consumers know them by those. The broker may be away for as long as the spool's quota lasts. When it
comes back without what it had confirmed (it lost power before its disk had it), what the spool still keeps is published
again.
"""

import fcntl
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.system.bus import Bus
from actors.system.errors import BusUnavailable
from actors.system.lifecycle import Lifecycle, Task
from actors.system.streams import TRAFFIC_EXCHANGE
from daemon.errors import ConverterEnded
from daemon.ingest.conversion import Batch, Load
from daemon.ingest.converter import Converter
from daemon.tap.spool_reader import SpoolReader

T = TypeVar("T")
_LOOK_SECONDS = 0.5
_KEEP_SECONDS = 300.0
"""Published segments are kept for so long, so that they can be published again. nats-server tells its disk to write
every two minutes (`sync_interval`)."""
log = structlog.get_logger(__name__)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the spool is emptied."""

    batch: int = 256
    """Records published at a time: one answer of the broker for all of them."""
    batch_bytes: int = 8 << 20
    """No more records once there are so many bytes of them, as they are held in memory twice."""
    records_per_second: float = 4000.0
    """Cap on the replay after an outage: it shares its machine with the tap and the store."""
    poll_seconds: float = 0.05
    """How often an empty spool is looked at: two looks at a directory."""
    retry_seconds: float = 0.2
    """First pause when the bus is away; doubles up to `max_retry_seconds`, times 0.5 to 1.5 by chance."""
    max_retry_seconds: float = 5.0


_KEEP_BYTES = 1 << 30
"""Of published segments: an eighth of the spool's quota, against which it counts."""


class ShipperMetrics:
    """What the shipper did, on a registry that the caller owns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shipped = Counter("evolved_shipper_records", "Records published.", ["kind"], registry=registry)
        self.unreadable = Counter(
            "evolved_shipper_unreadable_responses", "Exchanges published with an error.", registry=registry
        )
        self.replays = Counter(
            "evolved_shipper_replays",
            "Times that published records were published again, as the broker had lost some.",
            registry=registry,
        )
        self.torn = Counter("evolved_shipper_torn", "Places of the spool where bytes were skipped.", registry=registry)
        self.waits = Counter("evolved_shipper_waits", "Batches held back by the bus.", registry=registry)
        self.restarts = Counter(
            "evolved_shipper_converter_ends", "Times that a converter process ended or hung.", registry=registry
        )
        self.lag = Gauge("evolved_shipper_lag_bytes", "Bytes of the spool not yet read.", registry=registry)


class _Spool:
    """One spool and who reads it."""

    def __init__(self, directory: Path, reader: SpoolReader, loader: Converter) -> None:
        self.directory, self.reader, self.loader = directory, reader, loader


class Shipper:
    """Empties one or several spools, for as long as it lives. `run` is a task for the supervisor."""

    def __init__(
        self,
        directories: Sequence[Path],
        bus: Bus,
        *,
        metrics: ShipperMetrics,
        rng: random.Random,
        loader: Callable[[], Converter] = Converter,
        pace: Pace | None = None,
    ) -> None:
        self._directories, self._bus, self._metrics = tuple(directories), bus, metrics
        self._rng, self._loader, self._pace = rng, loader, pace or Pace()
        self._swept = 0.0
        self._losses = 0
        """Of the broker, those after which all that is kept was published again; an incarnation that ended before it
        had gone back leaves them to the next one."""
        self._confirmed = False
        """In this life, something."""

    async def run(self, lifecycle: Lifecycle) -> None:
        """Publish until draining; BusMisconfigured if no stream takes the records."""
        # From the cursors, not from where a crashed incarnation had got to.
        spools = [
            _Spool(
                directory, SpoolReader(directory, keep_seconds=_KEEP_SECONDS, keep_bytes=_KEEP_BYTES), self._loader()
            )
            for directory in self._directories
        ]
        self._bus.remember(TRAFFIC_EXCHANGE, max((spool.reader.sequence for spool in spools), default=0))
        lifecycle.ready()
        try:
            await self._empty(spools, lifecycle)
        finally:
            for spool in spools:
                spool.loader.close()

    async def _empty(self, spools: Sequence[_Spool], lifecycle: Lifecycle) -> None:
        while not lifecycle.draining.is_set():
            moved = False
            for spool in spools:
                if spool.reader.ready():
                    moved |= await self._ship(spool, lifecycle)
            await self._replay(spools)
            lifecycle.beat()
            await self._sweep(spools)
            if not moved and not await lifecycle.pause(self._pace.poll_seconds):
                return

    async def _ship(self, spool: _Spool, lifecycle: Lifecycle) -> bool:
        """Publish the next batch; False if there was none, or draining began first."""
        began, reader = anyio.current_time(), spool.reader
        request = Load(str(spool.directory), reader.position, self._pace.batch, self._pace.batch_bytes)
        batch = await self._insist(partial(self._load, spool.loader, request, lifecycle), lifecycle)
        if batch is None:
            return False
        reader.skip(batch.after, batch.exhausted)
        if batch.torn:
            self._metrics.torn.inc(batch.torn)
            log.warning("spool_torn", places=batch.torn, segment=reader.position.segment)
        if not batch.items or not await self._insist(partial(self._publish, batch), lifecycle):
            return False
        self._confirmed = True
        if self._bus.tail(TRAFFIC_EXCHANGE).losses > self._losses:
            # The cursor keeps the old number: who goes on from there, if we end before we have gone back, finds it too.
            return True
        await anyio.to_thread.run_sync(reader.commit, batch.after, self._bus.tail(TRAFFIC_EXCHANGE).sequence)
        for kind, number in batch.kinds.items():
            self._metrics.shipped.labels(kind).inc(number)
        self._metrics.unreadable.inc(batch.unreadable)
        spare = len(batch.items) / self._pace.records_per_second - (anyio.current_time() - began)
        return spare <= 0 or await lifecycle.pause(spare)

    async def _load(self, loader: Converter, request: Load, lifecycle: Lifecycle) -> Batch | None:
        with lifecycle.interruptible():
            return await loader.load(request)
        return None

    async def _publish(self, batch: Batch) -> bool:
        await self._bus.publish(batch.items)
        return True

    async def _insist(self, operation: Callable[[], Awaitable[T]], lifecycle: Lifecycle) -> T | None:
        """Until it succeeds; None if draining began first: the records are still in the spool."""
        delay, said = self._pace.retry_seconds, False
        while True:
            try:
                result = await operation()
            except (BusUnavailable, ConverterEnded) as error:
                (self._metrics.waits if isinstance(error, BusUnavailable) else self._metrics.restarts).inc()
                if not said:
                    log.warning("shipper_waiting", error=str(error))
                said = True
                lifecycle.waiting(f"{type(error).__name__}: {error}")
                if not await lifecycle.pause(delay * self._rng.uniform(0.5, 1.5)):
                    return None
                delay = min(self._pace.max_retry_seconds, 2 * delay)
                continue
            if said:
                log.info("shipper_going_on")
            lifecycle.ready()
            return result

    async def _replay(self, spools: Sequence[_Spool]) -> None:
        losses = self._bus.tail(TRAFFIC_EXCHANGE).losses
        for spool in spools if losses > self._losses else ():
            size = await anyio.to_thread.run_sync(spool.reader.rewind)
            self._metrics.replays.inc()
            log.error("shipper_replays", spool=str(spool.directory), reason="broker lost records", bytes=size)
        self._losses = losses

    async def _sweep(self, spools: Sequence[_Spool]) -> None:
        now = anyio.current_time()
        if now - self._swept < 5.0:
            return
        self._swept = now
        self._metrics.lag.set(sum(spool.reader.lag_bytes() for spool in spools))
        for spool in spools:
            # A broker that has not confirmed anything yet may come back without what is kept here.
            await anyio.to_thread.run_sync(partial(spool.reader.sweep, aged=self._confirmed))


def alone(directory: Path, task: Task) -> Task:
    """`task`, once no other process has `directory`; until then there is nothing to do: daemons that share a machine
    share its tap's spool, and one of them empties it. The kernel frees what a dead one had."""

    async def run(lifecycle: Lifecycle) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(directory / ".shipper", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(descriptor):
                lifecycle.ready()
                if not await lifecycle.pause(_LOOK_SECONDS):  # file locks have no event to wait for
                    return
            await task(lifecycle)
        finally:
            os.close(descriptor)

    return run


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
