"""Prometheus collectors of the actor system, on a registry that the caller owns."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from actors.system.lifecycle import ActorState


class SystemMetrics:
    """Counters that the runner and the bus feed, and gauges that are set from their states before a scrape."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.handled = Counter("evolved_actor_handled", "Records handled and committed.", ["actor"], registry=registry)
        self.failed = Counter("evolved_actor_failed", "Handler failures.", ["actor"], registry=registry)
        self.parked = Counter("evolved_actor_parked", "Records parked as dead letters.", ["actor"], registry=registry)
        self.bus_disconnects = Counter("evolved_bus_disconnects", "Connections lost.", registry=registry)
        self.mailbox = Gauge("evolved_mailbox_depth", "Records per durable.", ["durable", "state"], registry=registry)
        self.restarts = Gauge("evolved_actor_restarts", "Restarts since start.", ["actor"], registry=registry)
        self.ready = Gauge("evolved_actor_ready", "1 if the actor is ready.", ["actor"], registry=registry)
        self.beat_age = Gauge("evolved_actor_beat_age_seconds", "Since the last beat.", ["actor"], registry=registry)

    def observe(self, actors: Sequence[ActorState]) -> None:
        """Take over the supervisor's state."""
        for actor in actors:
            self.restarts.labels(actor.name).set(actor.restarts)
            self.ready.labels(actor.name).set(actor.status == "ready")
            self.beat_age.labels(actor.name).set(actor.beat_age)

    def observe_depth(self, durable: str, waiting: int, in_flight: int) -> None:
        """Take over how far a durable is behind."""
        self.mailbox.labels(durable, "waiting").set(waiting)
        self.mailbox.labels(durable, "in_flight").set(in_flight)
