"""Prometheus collectors of the learner, on a registry that the caller owns."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class LearnerMetrics:
    """Counters over the process' life, and the figures of the last update."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """
        Args:
            registry: a new one per process, or per test.
        """
        self.orders = Counter(
            "evolved_learner_orders",
            "Orders and directives by what became of them: trained, skipped, repeated, rolled_back, ignored, dead.",
            ["result"],
            registry=registry,
        )
        self.dropped = Counter(
            "evolved_learner_dropped", "Trajectories and rows left out, by reason.", ["reason"], registry=registry
        )
        self.dead_lost = Counter(
            "evolved_learner_dead_letters_lost", "Dead letters that the DEAD stream did not take.", registry=registry
        )
        self.retries = Counter(
            "evolved_learner_retries", "Orders put off for another attempt, by cause.", ["cause"], registry=registry
        )
        self.tokens = Counter("evolved_learner_tokens", "Tokens trained on.", registry=registry)
        self.steps = Counter(
            "evolved_learner_steps",
            "Optimizer steps: taken, nonfinite (thrown away), shrunk or undone by the KL guard.",
            ["result"],
            registry=registry,
        )
        self.version = Gauge("evolved_learner_version", "Newest version.", registry=registry)
        self.last = Gauge("evolved_learner_last", "Figures of the last update.", ["figure"], registry=registry)
        self.seconds = Histogram(
            "evolved_learner_update_seconds",
            "From order to committed version.",
            registry=registry,
            buckets=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
        )

    def observe(self, dropped: Mapping[str, int], figures: Mapping[str, float]) -> None:
        """Take over what an update told."""
        for reason, n in dropped.items():
            self.dropped.labels(reason).inc(n)
        for name, value in figures.items():
            self.last.labels(name).set(value)
        self.tokens.inc(figures.get("tokens", 0.0))
        for result, name in (
            ("taken", "steps"),
            ("nonfinite", "steps_nonfinite"),
            ("shrunk", "steps_shrunk"),
            ("undone", "steps_undone"),
        ):
            self.steps.labels(result).inc(figures.get(name, 0.0))
