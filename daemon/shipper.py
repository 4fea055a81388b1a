"""The shipper: from the tap's spool to the bus.

    spool -> raw records -> Exchange / Feedback -> TRAFFIC        (unreadable records -> `dead.spool`)

It moves its cursor only over what the bus has confirmed. After a crash some records are published again, under the same
ids; streams and consumers know them by those. The broker may be away for as long as the spool's quota lasts. When it
comes back without what it had confirmed (it lost power before its disk had it), what the spool still keeps is published
again; so it is when an operator asks for it (`evolved replay`).
"""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.messages import Feedback, MessageError
from actors.messages.spool import decode_spooled
from actors.system.actor import DeadLetter
from actors.system.bus import Bus, Outgoing, outgoing
from actors.system.errors import BusUnavailable
from actors.system.life import Life
from actors.system.streams import DEAD, TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from adapters.intake.tap import exchange_from_raw
from daemon.tap.replay import asked_replay, replay_begun
from daemon.tap.segments import Position
from daemon.tap.spool_reader import Spooled, SpoolReader

DEAD_SPOOL = f"{DEAD}.spool"

log = structlog.get_logger(__name__)


class ShipperSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast the spool is emptied."""

    batch: int = 256
    """Records published at a time."""
    batch_bytes: int = 8 << 20
    records_per_second: float = 4000.0
    """Cap on the replay after an outage: it shares its machine with the tap and the store."""
    poll_seconds: float = 0.05
    """How often an empty spool is looked at."""
    keep_seconds: float = 300.0
    """Published segments are kept for so long, so that they can be published again. nats-server tells its disk to write
    every two minutes (`sync_interval`)."""
    keep_bytes: int = 1 << 30
    """And so much of them at most; it counts against the spool's quota."""
    retry_seconds: float = 0.2
    """First pause when the bus is away; doubles up to `max_retry_seconds`, times 0.5 to 1.5 by chance."""
    max_retry_seconds: float = 5.0


class ShipperMetrics:
    """What the shipper did, on a registry that the caller owns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shipped = Counter("evolved_shipper_records", "Records published.", ["kind"], registry=registry)
        self.unreadable = Counter(
            "evolved_shipper_unreadable_responses", "Exchanges published with an error.", registry=registry
        )
        self.replays = Counter(
            "evolved_shipper_replays",
            "Times that published records were published again.",
            ["reason"],
            registry=registry,
        )
        self.torn = Counter("evolved_shipper_torn", "Places of the spool where bytes were skipped.", registry=registry)
        self.waits = Counter("evolved_shipper_waits", "Batches held back by the bus.", registry=registry)
        self.lag = Gauge("evolved_shipper_lag_bytes", "Bytes of the spool not yet read.", registry=registry)


class _Batch(msgspec.Struct, frozen=True):
    items: list[Outgoing]
    after: Position
    kinds: dict[str, int]
    unreadable: int


class Shipper:
    """Empties one or several spools, for as long as it lives. `run` is a task for the supervisor."""

    def __init__(
        self,
        directories: Sequence[Path],
        bus: Bus,
        *,
        settings: ShipperSettings,
        metrics: ShipperMetrics,
        rng: random.Random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            directories: the spools, one per tap process.
            rng: for the jitter of retries.
            clock: unix seconds.
        """
        self._directories, self._bus, self._settings, self._metrics = tuple(directories), bus, settings, metrics
        self._rng, self._clock = rng, clock
        self._swept = 0.0
        self._losses = 0
        self._confirmed = False
        """In this life, something."""

    async def run(self, life: Life) -> None:
        """Publish until draining.

        Raises:
            BusMisconfigured: no stream takes the records.
            OSError: the disk failed.
        """
        # From the cursors, not from where a crashed incarnation had got to.
        readers = [
            SpoolReader(
                directory,
                keep_seconds=self._settings.keep_seconds,
                keep_bytes=self._settings.keep_bytes,
                clock=self._clock,
            )
            for directory in self._directories
        ]
        self._bus.remember(TRAFFIC_EXCHANGE, max((reader.sequence for reader in readers), default=0))
        self._losses = self._bus.tail(TRAFFIC_EXCHANGE).losses
        life.ready()
        while not life.draining.is_set():
            moved = False
            for reader in readers:
                if reader.ready():
                    moved |= await self._ship(reader, life)
            await self._replay(readers)
            life.beat()
            await self._sweep(readers)
            if not moved and not await life.pause(self._settings.poll_seconds):
                return

    async def _ship(self, reader: SpoolReader, life: Life) -> bool:
        """Publish the next batch; False if there was none, or draining began first."""
        began = anyio.current_time()
        torn = reader.torn
        batch = await anyio.to_thread.run_sync(self._load, reader)
        if reader.torn > torn:
            self._metrics.torn.inc(reader.torn - torn)
            log.warning("spool_torn", places=reader.torn - torn, segment=reader.position.segment)
        if batch is None or not await self._publish(batch.items, life):
            return False
        self._confirmed = True
        await anyio.to_thread.run_sync(reader.commit, batch.after, self._bus.tail(TRAFFIC_EXCHANGE).sequence)
        for kind, number in batch.kinds.items():
            self._metrics.shipped.labels(kind).inc(number)
        self._metrics.unreadable.inc(batch.unreadable)
        spare = len(batch.items) / self._settings.records_per_second - (anyio.current_time() - began)
        return spare <= 0 or await life.pause(spare)

    async def _publish(self, items: Sequence[Outgoing], life: Life) -> bool:
        """Until the bus has them; False if draining began first: they are still in the spool."""
        delay, said = self._settings.retry_seconds, False
        while True:
            try:
                await self._bus.publish(items)
            except BusUnavailable as error:
                self._metrics.waits.inc()
                if not said:
                    log.warning("shipper_waiting", error=str(error))
                said = True
                life.waiting(f"{type(error).__name__}: {error}")
                if not await life.pause(delay * self._rng.uniform(0.5, 1.5)):
                    return False
                delay = min(self._settings.max_retry_seconds, 2 * delay)
                continue
            if said:
                log.info("shipper_going_on")
            life.ready()
            return True

    def _load(self, reader: SpoolReader) -> _Batch | None:
        """Read and convert; in a worker thread, because merging streams takes its time."""
        records = reader.read(self._settings.batch, self._settings.batch_bytes)
        if not records:
            return None
        items: list[Outgoing] = []
        kinds = {"exchange": 0, "feedback": 0, "dead": 0}
        unreadable = 0
        for record in records:
            item, kind, error = convert(record)
            items.append(item)
            kinds[kind] += 1
            unreadable += error
        return _Batch(items, records[-1].after, kinds, unreadable)

    async def _replay(self, readers: Sequence[SpoolReader]) -> None:
        """Go back, if the broker has lost what it confirmed, or if somebody asks for it."""
        losses = self._bus.tail(TRAFFIC_EXCHANGE).losses
        lost, self._losses = losses > self._losses, losses
        for directory, reader in zip(self._directories, readers, strict=True):
            asked = asked_replay(directory)
            if asked is None and not lost:
                continue
            since = 0.0 if asked is None or lost else asked
            size = await anyio.to_thread.run_sync(reader.rewind, since)
            replay_begun(directory)
            self._metrics.replays.labels("lost" if lost else "asked").inc()
            say = log.error if lost else log.info
            say("shipper_replays", spool=str(directory), reason="broker lost records" if lost else "asked", bytes=size)

    async def _sweep(self, readers: Sequence[SpoolReader]) -> None:
        now = anyio.current_time()
        if now - self._swept < 5.0:
            return
        self._swept = now
        self._metrics.lag.set(sum(reader.lag_bytes() for reader in readers))
        for reader in readers:
            # A broker that has not confirmed anything yet may come back without what is kept here.
            await anyio.to_thread.run_sync(partial(reader.sweep, aged=self._confirmed))


def convert(record: Spooled) -> tuple[Outgoing, str, bool]:
    """What `record` becomes on the bus: (item, "exchange" | "feedback" | "dead", whether its response is unreadable).

    Never raises: a record that cannot be decoded becomes a dead letter.
    """
    try:
        message = decode_spooled(record.payload)
        if isinstance(message, Feedback):
            return outgoing(TRAFFIC_FEEDBACK, message), "feedback", False
        exchange = exchange_from_raw(message)
        return outgoing(TRAFFIC_EXCHANGE, exchange), "exchange", bool(exchange.error)
    except MessageError as error:
        return _dead(record, str(error)), "dead", False
    except Exception as error:
        # A bug of ours in reading one record must not hold up all that come after it.
        log.exception("spool_record_failed", id=record.id.hex())
        return _dead(record, repr(error)), "dead", False


def _dead(record: Spooled, error: str) -> Outgoing:
    letter = DeadLetter(actor="spool", input_id=record.id.hex(), subject="", data=record.payload, error=error[:2000])
    return Outgoing(DEAD_SPOOL, f"{DEAD_SPOOL}:{record.id.hex()}", msgspec.msgpack.encode(letter))
