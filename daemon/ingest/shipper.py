"""The shipper: from the tap's spool to the bus.

    segments -> bytes of Exchange / Feedback, as the recorder wrote them -> TRAFFIC

It decodes nothing: whoever takes a record in judges it. It moves its cursor only over what the bus has confirmed. After
a crash some records are published again, under the same ids; streams and consumers know them by those. The broker may
be away for as long as the spool's quota lasts. When it comes back without what it had confirmed (it lost power before
its disk had it), what the spool still keeps is published again.
"""

import fcntl
import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.messages.codec import kind_of
from actors.system.bus import Bus
from actors.system.errors import DependencyUnavailable
from actors.system.lifecycle import Lifecycle, Task
from actors.system.outgoing import Outgoing
from actors.system.patience import Drained, Patience
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from daemon.tap.spool_reader import Spooled, SpoolReader

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


_KEEP_BYTES = 1 << 30
"""Of published segments: an eighth of the spool's quota, against which it counts."""


class ShipperMetrics:
    """What the shipper did, on a registry that the caller owns."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shipped = Counter("evolved_shipper_records", "Records published.", registry=registry)
        self.replays = Counter(
            "evolved_shipper_replays",
            "Times that published records were published again, as the broker had lost some.",
            registry=registry,
        )
        self.torn = Counter("evolved_shipper_torn", "Places of the spool where bytes were skipped.", registry=registry)
        self.waits = Counter("evolved_shipper_waits", "Batches held back by the bus.", registry=registry)
        self.lag = Gauge("evolved_shipper_lag_bytes", "Bytes of the spool not yet read.", registry=registry)


class Shipper:
    """Empties one or several spools, for as long as it lives. `run` is a task for the supervisor."""

    def __init__(
        self,
        directories: Sequence[Path],
        bus: Bus,
        *,
        metrics: ShipperMetrics,
        rng: random.Random,
        pace: Pace | None = None,
    ) -> None:
        self._directories, self._bus, self._metrics = tuple(directories), bus, metrics
        self._rng, self._pace = rng, pace or Pace()
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
            SpoolReader(directory, keep_seconds=_KEEP_SECONDS, keep_bytes=_KEEP_BYTES)
            for directory in self._directories
        ]
        patience = Patience(lifecycle, log, rng=self._rng, longest=5.0, waited=self._waited)
        patience.begun = True
        self._bus.remember(TRAFFIC_EXCHANGE, max((spool.sequence for spool in spools), default=0))
        lifecycle.ready()
        try:
            await self._empty(spools, patience)
        except Drained:
            log.info("drained_during_outage")  # the records are still in the spool

    async def _empty(self, spools: Sequence[SpoolReader], patience: Patience) -> None:
        lifecycle = patience.lifecycle
        while not lifecycle.draining.is_set():
            moved = False
            for spool in spools:
                if spool.ready():
                    moved |= await self._ship(spool, patience)
            await self._replay(spools)
            lifecycle.beat()
            await self._sweep(spools)
            if not moved and not await lifecycle.pause(self._pace.poll_seconds):
                return

    async def _ship(self, spool: SpoolReader, patience: Patience) -> bool:
        """Publish the next batch; False if there was none, or draining began first."""
        began, torn = anyio.current_time(), spool.torn
        found = await anyio.to_thread.run_sync(spool.read, self._pace.batch, self._pace.batch_bytes)
        if spool.torn > torn:
            self._metrics.torn.inc(spool.torn - torn)
            log.warning("spool_torn", places=spool.torn - torn, segment=spool.position.segment)
        if not found:
            return False
        items = [_outgoing(record) for record in found]
        await patience.insist(lambda: self._bus.publish(items))
        self._confirmed = True
        if self._bus.tail(TRAFFIC_EXCHANGE).losses > self._losses:
            # The cursor keeps the old number: who goes on from there, if we end before we have gone back, finds it too.
            return True
        await anyio.to_thread.run_sync(spool.commit, spool.position, self._bus.tail(TRAFFIC_EXCHANGE).sequence)
        self._metrics.shipped.inc(len(items))
        spare = len(items) / self._pace.records_per_second - (anyio.current_time() - began)
        return spare <= 0 or await patience.lifecycle.pause(spare)

    def _waited(self, error: DependencyUnavailable) -> None:
        self._metrics.waits.inc()

    async def _replay(self, spools: Sequence[SpoolReader]) -> None:
        losses = self._bus.tail(TRAFFIC_EXCHANGE).losses
        for spool in spools if losses > self._losses else ():
            size = await anyio.to_thread.run_sync(spool.rewind)
            self._metrics.replays.inc()
            log.error("shipper_replays", spool=str(spool.directory), reason="broker lost records", bytes=size)
        self._losses = losses

    async def _sweep(self, spools: Sequence[SpoolReader]) -> None:
        now = anyio.current_time()
        if now - self._swept < 5.0:
            return
        self._swept = now
        self._metrics.lag.set(sum(spool.lag_bytes() for spool in spools))
        for spool in spools:
            # A broker that has not confirmed anything yet may come back without what is kept here.
            await anyio.to_thread.run_sync(partial(spool.sweep, aged=self._confirmed))


def _outgoing(record: Spooled) -> Outgoing:
    """A record for the bus. What is no message goes to the calls, whose reader parks it with the reason."""
    subject = TRAFFIC_FEEDBACK if kind_of(record.payload) == "feedback" else TRAFFIC_EXCHANGE
    return Outgoing(subject, f"{subject}:{record.id.hex()}", record.payload)


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
