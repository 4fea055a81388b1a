"""The way out that actors and producers share: commit, publish, mark, with the patience that outages ask for."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import structlog

from actors.system.actor import Result
from actors.system.bus import Bus
from actors.system.errors import DependencyUnavailable
from actors.system.ledger import Ledger
from actors.system.lifecycle import Lifecycle
from actors.system.metrics import SystemMetrics
from actors.system.outgoing import Outgoing, outgoing

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How records are retried: the same in every installation."""

    first_wait: float = 0.5
    """Seconds before the first new attempt after an outage or a failure; doubles, times 0.5 to 1.5 by chance."""
    max_wait: float = 30.0
    fetch_seconds: float = 1.0
    """Longest wait for records; the heartbeat of an idle actor."""
    flush: int = 256
    """Outbox records published at a time."""


class Drained(Exception):
    """The process is ending while an outage lasts; what is not acked comes again after the start."""


class Outbox:
    """One task's way out."""

    def __init__(
        self, name: str, bus: Bus, ledger: Ledger, lifecycle: Lifecycle, settings: RunnerSettings,
        metrics: SystemMetrics, rng: random.Random,
    ) -> None:  # fmt: skip
        self.name, self.bus, self.ledger, self.lifecycle = name, bus, ledger, lifecycle
        self.settings, self.metrics, self.rng = settings, metrics, rng
        self.log = _log.bind(actor=name)
        self.started = False

    async def insist(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat `operation` until no dependency is missing any more. `Drained` if draining begins first."""
        attempt = 0
        while True:
            try:
                result = await operation()
            except DependencyUnavailable as error:
                await self.wait_out(error, attempt)
                attempt += 1
            else:
                if attempt:
                    self.back(attempt)
                return result

    async def wait_out(self, error: DependencyUnavailable, attempt: int) -> None:
        """Pause before attempt `attempt + 1`; logs the first one only."""
        reason = f"{type(error).__name__}: {error}"
        if attempt == 0:
            self.log.warning("dependency_away", reason=reason)
        self.metrics.waits.labels(self.name).inc()
        self.lifecycle.waiting(reason)
        if not await self.lifecycle.pause(self.backoff(attempt)):
            raise Drained
        self.lifecycle.beat()

    def back(self, attempts: int) -> None:
        """The outage is over."""
        self.log.info("dependency_back", attempts=attempts)
        if self.started:
            self.lifecycle.ready()

    def begin(self) -> None:
        """Rebuilt and flushed: the task counts as ready from here on."""
        self.started = True
        self.lifecycle.ready()

    def backoff(self, attempt: int) -> float:
        """Seconds, jittered."""
        delay = min(self.settings.max_wait, self.settings.first_wait * 2.0 ** min(attempt, 30))
        return delay * (0.5 + self.rng.random())

    async def commit(self, inputs: Sequence[str], result: Result) -> bool:
        """Commit, then publish; False if an input was processed elsewhere meanwhile."""
        outputs = [outgoing(output.subject, output.message) for output in result.outputs]
        records = tuple(result.records)
        if not (inputs or outputs or records):
            return True
        attempts = 0

        async def once() -> Sequence[Outgoing] | None:
            nonlocal attempts
            attempts += 1
            return await self.ledger.commit(self.name, inputs, records, outputs)

        written = await self.insist(once)
        if written is None:
            return False
        await self.send(written)
        if attempts > 1:
            # One of them may have been written and its answer lost: what followed from its records is in the outbox.
            await self.flush()
        return True

    async def send(self, outputs: Sequence[Outgoing]) -> None:
        """Publish committed outputs and mark them."""
        for start in range(0, len(outputs), self.settings.flush):
            part = outputs[start : start + self.settings.flush]
            await self.insist(lambda part=part: self.bus.publish(part))
            await self.insist(lambda part=part: self.ledger.published(self.name, [item.id for item in part]))
            self.metrics.published.labels(self.name).inc(len(part))

    async def flush(self) -> None:
        """Publish what an earlier life committed and did not get out."""
        while items := await self.insist(lambda: self.ledger.unpublished(self.name, self.settings.flush)):
            self.log.info("outbox_flushed", outputs=len(items))
            await self.send(items)
