"""The shipper: from the spool to the bus.

    segments -> bytes of Exchange / Feedback, as they were written -> TRAFFIC

It decodes nothing: whoever takes a record in judges it. It moves its cursor only over what the bus has confirmed. After
a crash some records are published again, under the same ids; streams and consumers know them by those. The broker may
be away for as long as the spool's quota lasts. When it comes back without what it had confirmed (it lost power before
its disk had it), what the spool still keeps is published again.

Each tap of the machine has a directory of the spool. Those that come are found; one that cannot be read or written
(another owner, a disk that failed) is named, counted and tried again, while the others are emptied.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog
from prometheus_client.core import Metric

from actors.messages.codec import kind_of
from actors.messages.files import lock
from actors.system.bus import Bus
from actors.system.lifecycle import Lifecycle, Task
from actors.system.outgoing import Outgoing
from actors.system.patience import Drained, Patience
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from daemon.figures import counter, gauge
from daemon.tap.spool import Record, SpoolReader, spools

BATCH = 256
"""Records published at a time: one answer of the broker for all of them."""
_BATCH_BYTES = 8 << 20
"""No more records once there are so many bytes of them, as they are held in memory twice."""
RECORDS_PER_SECOND = 8000.0
"""Cap on the replay after an outage: it shares its machine with the tap and the store."""
_POLL_SECONDS = 0.1
"""How often an empty spool is looked at: a list of a directory, in another thread."""
_LIST_SECONDS = 2.0
"""How often new directories are looked for."""
_SWEEP_SECONDS = 5.0
_AGAIN_SECONDS = 5.0
"""After which a directory that failed is tried again."""
_KEEP_SECONDS = 300.0
"""Published segments are kept for so long, so that they can be published again. nats-server tells its disk to write
every two minutes (`sync_interval`)."""
_KEEP_BYTES = 1 << 30
"""Of published segments, of all taps together: an eighth of the spool's quota, against which it counts."""
_LOOK_SECONDS = 0.5
_COUNTED = {
    "records": "Records published.",
    "replays": "Times that published records were published again, as the broker had lost some.",
    "torn": "Places of the spool where bytes were skipped.",
    "failures": "Times that a tap's part of the spool could not be read or written.",
    "waits": "Batches held back by the bus.",
}
log = structlog.get_logger(__name__)


class _Source:
    """One tap's part of the spool."""

    def __init__(self, directory: Path, losses: int) -> None:
        self.directory, self.losses = directory, losses
        """Of the broker, those after which all that is kept here was published again."""
        self.again = self.swept = 0.0
        """When it is tried again, if it failed, and when it was swept."""
        self.lag = 0
        self.start()

    def start(self) -> None:
        """From the cursor, not from where somebody who failed had got to."""
        self.reader = SpoolReader(self.directory, keep_seconds=_KEEP_SECONDS)


class Shipper:
    """Empties the spools of all taps of this machine, for as long as it lives. `run` is a task for the supervisor."""

    def __init__(self, directory: Path, bus: Bus, *, rng: random.Random) -> None:
        """`directory` has one for each tap."""
        self._directory, self._bus, self._rng = directory, bus, rng
        self.counts: Counter[str] = Counter()
        self._sources: dict[Path, _Source] = {}
        """They stay when an incarnation ends: one that had not gone back after a loss leaves that to the next one."""
        self._listed = 0.0
        self._confirmed = False
        """In this life, something."""

    @property
    def lag(self) -> int:
        """Bytes of the spool that were not read yet when it was last looked at."""
        return sum(source.lag for source in self._sources.values())

    async def run(self, lifecycle: Lifecycle) -> None:
        """Publish until draining; BusMisconfigured if no stream takes the records."""
        patience = Patience(
            lifecycle, log, rng=self._rng, longest=5.0, waited=lambda error: self.counts.update(waits=1)
        )
        patience.begun = True
        for source in self._sources.values():
            source.start()
        lifecycle.ready()
        try:
            while not lifecycle.draining.is_set():
                await self._list()
                moved = [await self._turn(source, patience) for source in self._sources.values()]
                lifecycle.beat()
                if not any(moved):
                    await lifecycle.pause(_POLL_SECONDS)
        except Drained:
            log.info("drained_during_outage")  # the records are still in the spool

    async def _list(self) -> None:
        """Find directories of taps that are new."""
        if anyio.current_time() < self._listed:
            return
        self._listed = anyio.current_time() + _LIST_SECONDS
        losses, known = self._bus.tail(TRAFFIC_EXCHANGE).losses, self._sources
        try:
            found = await anyio.to_thread.run_sync(spools, self._directory)
        except OSError as error:
            self.counts["failures"] += 1
            log.error("spool_unusable", spool=str(self._directory), error=str(error))
            return
        self._sources = {path: known.get(path) or _Source(path, losses) for path in found}
        new = [source.reader.sequence for path, source in self._sources.items() if path not in known]
        self._bus.remember(TRAFFIC_EXCHANGE, max(new, default=0))

    async def _turn(self, source: _Source, patience: Patience) -> bool:
        """Publish the next batch of `source`; False if there was none, or its disk failed."""
        if anyio.current_time() < source.again:
            return False
        try:
            moved = await self._ship(source, patience)
            await self._sweep(source)
        except OSError as error:
            self.counts["failures"] += 1
            if not source.again:
                log.error("spool_unusable", spool=str(source.directory), error=str(error))
            source.again = anyio.current_time() + _AGAIN_SECONDS
            source.start()
            return False
        if source.again:
            source.again = 0.0
            log.info("spool_usable", spool=str(source.directory))
        return moved

    async def _ship(self, source: _Source, patience: Patience) -> bool:
        reader = source.reader
        losses = self._bus.tail(TRAFFIC_EXCHANGE).losses
        if losses > source.losses:
            size = await anyio.to_thread.run_sync(reader.rewind)
            source.losses = losses
            self.counts["replays"] += 1
            log.error("shipper_replays", spool=str(source.directory), reason="broker lost records", bytes=size)
        began, torn = anyio.current_time(), reader.torn
        found = await anyio.to_thread.run_sync(reader.read, BATCH, _BATCH_BYTES)
        if reader.torn > torn:
            self.counts["torn"] += reader.torn - torn
            log.warning("spool_torn", places=reader.torn - torn, spool=str(source.directory))
        if not reader.moved:
            return False
        if found:
            items = [_outgoing(record) for record in found]
            await patience.insist(lambda: self._bus.publish(items))
            self._confirmed = True
        if self._bus.tail(TRAFFIC_EXCHANGE).losses > source.losses:
            # The cursor keeps the old number: who goes on from there, if we end before we have gone back, finds it too.
            return True
        await anyio.to_thread.run_sync(reader.commit, self._bus.tail(TRAFFIC_EXCHANGE).sequence)
        self.counts["records"] += len(found)
        spare = len(found) / RECORDS_PER_SECOND - (anyio.current_time() - began)
        if spare > 0:
            await patience.lifecycle.pause(spare)
        return bool(found)

    async def _sweep(self, source: _Source) -> None:
        if anyio.current_time() < source.swept + _SWEEP_SECONDS:
            return
        source.swept = anyio.current_time()
        source.lag = await anyio.to_thread.run_sync(source.reader.lag_bytes)
        # A broker that has not confirmed anything yet may come back without what is kept here.
        share = _KEEP_BYTES // len(self._sources)
        await anyio.to_thread.run_sync(partial(source.reader.sweep, share, aged=self._confirmed))


def _outgoing(record: Record) -> Outgoing:
    """A record for the bus. What is no message goes to the calls, whose reader parks it with the reason."""
    subject = TRAFFIC_FEEDBACK if kind_of(record.payload) == "feedback" else TRAFFIC_EXCHANGE
    return Outgoing(subject, f"{subject}:{record.id.hex()}", record.payload)


def shipper_figures(shipper: Shipper) -> Iterator[Metric]:
    for name, about in _COUNTED.items():
        yield counter(f"evolved_shipper_{name}", about, shipper.counts[name])
    yield gauge("evolved_shipper_lag_bytes", "Bytes of the spool not yet read.", shipper.lag)


def alone(directory: Path, task: Task) -> Task:
    """`task`, once no other process has `directory`; until then there is nothing to do: daemons that share a machine
    share its tap's spool, and one of them empties it. The kernel frees what a dead one had."""

    async def run(lifecycle: Lifecycle) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = -1
        while descriptor < 0:
            try:
                descriptor = lock(directory / ".shipper")
            except BlockingIOError:
                lifecycle.ready()
                if not await lifecycle.pause(_LOOK_SECONDS):  # file locks have no event to wait for
                    return
        try:
            await task(lifecycle)
        finally:
            os.close(descriptor)

    return run
