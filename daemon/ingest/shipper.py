"""The shipper: from the tap's spool to the bus.

    segments -> bytes of Exchange / Feedback, as the recorder wrote them -> TRAFFIC

It decodes nothing: whoever takes a record in judges it. It moves its cursor only over what the bus has confirmed. After
a crash some records are published again, under the same ids; streams and consumers know them by those. The broker may
be away for as long as the spool's quota lasts. When it comes back without what it had confirmed (it lost power before
its disk had it), what the spool still keeps is published again.

Each tap of the machine has a directory of the spool. Those that come are found; one that cannot be read or written
(another owner, a disk that failed) is named, counted and tried again, while the others are emptied.
"""

import fcntl
import os
import random
from collections.abc import Awaitable, Callable
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
from daemon.tap.segments import spools
from daemon.tap.spool_reader import Spooled, SpoolReader

_LOOK_SECONDS = 0.5
_LIST_SECONDS = 2.0
"""How often new directories are looked for."""
_SWEEP_SECONDS = 5.0
_AGAIN_SECONDS = 5.0
"""After which a directory that failed is tried again."""
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
"""Of published segments, of all taps together: an eighth of the spool's quota, against which it counts."""


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
        self.failures = Counter(
            "evolved_shipper_failures",
            "Times that a tap's part of the spool could not be read or written.",
            registry=registry,
        )
        self.waits = Counter("evolved_shipper_waits", "Batches held back by the bus.", registry=registry)
        self.lag = Gauge("evolved_shipper_lag_bytes", "Bytes of the spool not yet read.", registry=registry)


class _Source:
    """One tap's part of the spool."""

    def __init__(self, directory: Path, losses: int) -> None:
        self.directory, self.losses = directory, losses
        """Of the broker, those after which all that is kept here was published again."""
        self.broken = False
        self.again = 0.0
        """When it is tried again after a failure."""
        self.start()

    def start(self) -> None:
        """From the cursor, not from where somebody who failed had got to."""
        self.reader = SpoolReader(self.directory, keep_seconds=_KEEP_SECONDS)


class Shipper:
    """Empties the spools of all taps of this machine, for as long as it lives. `run` is a task for the supervisor."""

    def __init__(
        self,
        directory: Path,
        bus: Bus,
        *,
        metrics: ShipperMetrics,
        rng: random.Random,
        pace: Pace | None = None,
    ) -> None:
        """`directory` has one for each tap."""
        self._directory, self._bus, self._metrics = directory, bus, metrics
        self._rng, self._pace = rng, pace or Pace()
        self._sources: dict[Path, _Source] = {}
        """They stay when an incarnation ends: one that had not gone back after a loss leaves that to the next one."""
        self._listed = self._swept = 0.0
        self._confirmed = False
        """In this life, something."""

    async def run(self, lifecycle: Lifecycle) -> None:
        """Publish until draining; BusMisconfigured if no stream takes the records."""
        patience = Patience(lifecycle, log, rng=self._rng, longest=5.0, waited=self._waited)
        patience.begun = True
        for source in self._sources.values():
            source.start()
        lifecycle.ready()
        try:
            await self._empty(patience)
        except Drained:
            log.info("drained_during_outage")  # the records are still in the spool

    async def _empty(self, patience: Patience) -> None:
        lifecycle = patience.lifecycle
        while not lifecycle.draining.is_set():
            await self._list()
            moved = False
            for source in self._sources.values():
                if source.again <= anyio.current_time():
                    moved |= await self._tried(source, partial(self._ship, source, patience))
            lifecycle.beat()
            await self._sweep()
            if not moved and not await lifecycle.pause(self._pace.poll_seconds):
                return

    async def _list(self) -> None:
        """Find directories of taps that are new."""
        if anyio.current_time() < self._listed:
            return
        self._listed = anyio.current_time() + _LIST_SECONDS
        losses, known = self._bus.tail(TRAFFIC_EXCHANGE).losses, self._sources
        try:
            found = await anyio.to_thread.run_sync(spools, self._directory)
        except OSError as error:
            self._metrics.failures.inc()
            log.error("spool_unusable", spool=str(self._directory), error=str(error))
            return
        self._sources = {path: known.get(path) or _Source(path, losses) for path in found}
        new = [source.reader.sequence for path, source in self._sources.items() if path not in known]
        self._bus.remember(TRAFFIC_EXCHANGE, max(new, default=0))

    async def _tried(self, source: _Source, step: Callable[[], Awaitable[bool]]) -> bool:
        """What `step` returns; False if the disk failed."""
        try:
            done = await step()
        except OSError as error:
            self._metrics.failures.inc()
            if not source.broken:
                log.error("spool_unusable", spool=str(source.directory), error=str(error))
            source.broken, source.again = True, anyio.current_time() + _AGAIN_SECONDS
            source.start()
            return False
        if source.broken:
            source.broken = False
            log.info("spool_usable", spool=str(source.directory))
        return done

    async def _ship(self, source: _Source, patience: Patience) -> bool:
        """Publish the next batch; False if there was none, or draining began first."""
        if self._bus.tail(TRAFFIC_EXCHANGE).losses > source.losses:
            await self._replay(source)
        spool = source.reader
        if not spool.ready():
            return False
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
        if self._bus.tail(TRAFFIC_EXCHANGE).losses > source.losses:
            # The cursor keeps the old number: who goes on from there, if we end before we have gone back, finds it too.
            return True
        await anyio.to_thread.run_sync(spool.commit, spool.position, self._bus.tail(TRAFFIC_EXCHANGE).sequence)
        self._metrics.shipped.inc(len(items))
        spare = len(items) / self._pace.records_per_second - (anyio.current_time() - began)
        return spare <= 0 or await patience.lifecycle.pause(spare)

    def _waited(self, error: DependencyUnavailable) -> None:
        self._metrics.waits.inc()

    async def _replay(self, source: _Source) -> None:
        losses = self._bus.tail(TRAFFIC_EXCHANGE).losses
        size = await anyio.to_thread.run_sync(source.reader.rewind)
        source.losses = losses
        self._metrics.replays.inc()
        log.error("shipper_replays", spool=str(source.directory), reason="broker lost records", bytes=size)

    async def _sweep(self) -> None:
        if anyio.current_time() < self._swept:
            return
        self._swept = anyio.current_time() + _SWEEP_SECONDS
        lag = 0
        for source in [one for one in self._sources.values() if not one.broken]:

            async def sweep(reader: SpoolReader = source.reader) -> bool:
                nonlocal lag
                lag += await anyio.to_thread.run_sync(reader.lag_bytes)
                # A broker that has not confirmed anything yet may come back without what is kept here.
                share = _KEEP_BYTES // len(self._sources)
                await anyio.to_thread.run_sync(partial(reader.sweep, share, aged=self._confirmed))
                return True

            await self._tried(source, sweep)
        self._metrics.lag.set(lag)


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
