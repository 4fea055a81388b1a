"""Prometheus collectors of the learner, on a registry that the caller owns."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from learner.build import OLDEST
from learner.update import Outcome


class LearnerMetrics:
    """Counters over the process' life, and the figures of the last update."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """
        Args:
            registry: a new one per process, or per test.
        """
        self.orders = Counter(
            "evolved_learner_orders",
            "Orders and directives by what became of them: trained, skipped, repeated, went_back, ignored, dead.",
            ["result"],
            registry=registry,
        )
        self.dropped = Counter(
            "evolved_learner_dropped", "Trajectories and rows left out, by reason.", ["reason"], registry=registry
        )
        self.skipped = Counter(
            "evolved_learner_skipped",
            "Orders that were answered without an update, by reason: nothing_left, no_step, or why they were refused.",
            ["reason"],
            registry=registry,
        )
        self.staleness = StalenessHistogram()
        registry.register(self.staleness)
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
        self.version = Gauge("evolved_learner_version", "Version that the next update starts from.", registry=registry)
        self.last = Gauge("evolved_learner_last", "Figures of the last update.", ["figure"], registry=registry)
        self.seconds = Histogram(
            "evolved_learner_update_seconds",
            "From order to committed version.",
            registry=registry,
            buckets=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
        )

    def observe(self, outcome: Outcome) -> None:
        """Take over what an order told that was not answered from memory."""
        for reason, n in outcome.dropped.items():
            self.dropped.labels(reason).inc(n)
        if outcome.reason:
            self.skipped.labels(outcome.reason).inc()
        # A figure that this update does not have must not stand there with the last one's value.
        self.last.clear()
        figures = outcome.metrics
        for name, value in figures.items():
            self.last.labels(name).set(value)
        self.staleness.add(outcome.ages)
        self.tokens.inc(figures.get("tokens", 0.0))
        for result, name in (
            ("taken", "steps"),
            ("nonfinite", "steps_nonfinite"),
            ("shrunk", "steps_shrunk"),
            ("undone", "steps_undone"),
        ):
            self.steps.labels(result).inc(figures.get(name, 0.0))


class StalenessHistogram(Collector):
    """Sampled tokens by the updates that their policy lay back, as a Prometheus histogram.

    A collector of our own, because prometheus_client's `Histogram` takes one value a call, and an update has a hundred
    thousand.
    """

    def __init__(self) -> None:
        self._counts = [0] * (OLDEST + 2)

    def add(self, ages: Sequence[int]) -> None:
        """Count one batch's tokens, given by age as in `Built.ages`."""
        for age, n in enumerate(ages):
            self._counts[age] += n

    def collect(self) -> Iterable[HistogramMetricFamily]:
        below = list(accumulate(self._counts))
        buckets = [(str(float(age)), float(below[age])) for age in range(OLDEST + 1)]
        # What is older than the last bucket counts in the sum as one update older.
        total = float(sum(age * n for age, n in enumerate(self._counts)))
        family = HistogramMetricFamily(
            "evolved_learner_staleness", "Sampled tokens by the updates that their policy lay back."
        )
        family.add_metric([], [*buckets, ("+Inf", float(below[-1]))], total)
        yield family
