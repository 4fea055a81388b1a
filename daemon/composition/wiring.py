"""What the builders of the daemon's subsystems share: each puts its actors under the supervisor, and its
figures on `/metrics`."""

import random
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from actors.system.actor import Actor, Producer
from actors.system.backpressure import Backpressure
from actors.system.cache_invalidation import CacheInvalidation
from actors.system.leadership import Meanwhile
from actors.system.lifecycle import Lifecycle, Restart
from actors.system.runner import run_actor, run_producer
from actors.system.supervisor import Supervisor
from actors.versions.version_timeline import VersionTimeline
from daemon.collectors.figures import Figures
from daemon.composition.cluster import LeaderCollector
from daemon.composition.resources import Resources
from daemon.settings.config import Config

T = TypeVar("T")
LONG = Restart(stall_seconds=900.0)
"""For those whose handlers play dozens of episodes or wait for a swap."""


class Wiring:
    """One daemon, while it is built.

    Attributes:
        leadership: under its lease run the singletons, which keep in memory what follows from all records.
        singletons: registry of their figures, which mean something where they run.
        times: which weights an engine served when.
        invalidation: has the actors rebuild what they keep in memory.
    """

    def __init__(self, config: Config, parts: Resources, supervisor: Supervisor) -> None:
        self.config, self.parts, self.supervisor = config, parts, supervisor
        self.clock, self.singletons = time.time, CollectorRegistry()
        self.times, self.invalidation, self._backpressure = (
            VersionTimeline(self.clock),
            CacheInvalidation(),
            Backpressure(),
        )
        self.leadership = parts.member.leadership(parts.store.leases, self.times.forget)
        LeaderCollector(self.leadership, self.singletons).register(parts.registry)
        supervisor.add("leadership", self.leadership.run)

    def act(
        self, actor: Actor, restart: Restart | None = None, *, leads: bool = False, renews: bool = False,
        lane: str = "", meanwhile: Meanwhile | None = None,
    ) -> None:  # fmt: skip
        """Supervise `actor`, a singleton.

        Args:
            leads: it is the head of the flow; the others go slowly while it has more than it can take.
            renews: it keeps in memory what is in the store.
            lane: tells a second task of one actor from the first.
            meanwhile: what it does in a daemon that stands by.
        """
        parts = self.parts

        async def task(lifecycle: Lifecycle) -> None:
            await run_actor(
                actor, parts.bus, parts.store, lifecycle, rng=self.rng(actor.name),
                metrics=parts.metrics, backpressure=self._backpressure, leads=leads,
                invalidation=self.invalidation if renews else None,
            )  # fmt: skip

        self.supervisor.add(actor.name + lane, self.leadership.holds(task, meanwhile), restart)

    def produce(self, producer: Producer) -> None:
        """Supervise `producer`, a singleton."""
        parts = self.parts

        async def task(lifecycle: Lifecycle) -> None:
            await run_producer(
                producer, parts.bus, parts.store, lifecycle, rng=self.rng(producer.name),
                metrics=parts.metrics,
            )  # fmt: skip

        self.supervisor.add(producer.name, self.leadership.holds(task), LONG)

    def figures(self, read: Callable[[T], Iterable[Metric]], source: T) -> None:
        """Show what `read` finds in `source`, a singleton."""
        self.singletons.register(Figures(read, source))

    def rng(self, name: str) -> random.Random:
        """One for the part `name`: what it draws follows from the seed, whatever the others draw."""
        return random.Random(f"{self.config.seed}-{name}")
