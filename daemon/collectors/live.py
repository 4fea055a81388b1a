"""Live APIs on `/metrics`: how each fares, what became of its calls, what was taken out of its answers."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon.live.registry import Live


class LiveCollector(Collector):
    """Reads the registrations at the moment of a scrape."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def register(self, registry: CollectorRegistry) -> None:
        """Make these figures part of `registry`."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        health = self._live.health()
        for name, text, read in (
            ("up", "1 if it answered when it was last asked.", lambda one: float(one.ok)),
            ("tools", "Tools that it offers.", lambda one: float(one.tools)),
            (
                "last_success_seconds",
                "Unix time of its last good answer, 0: none.",
                lambda one: one.last_success or 0.0,
            ),
        ):
            family = GaugeMetricFamily(f"evolved_live_api_{name}", text, labels=["api", "kind"])
            for one in health:
                family.add_metric([one.name, one.kind], read(one))
            yield family
        calls = CounterMetricFamily(
            "evolved_live_api_calls", "Calls by what they came to or met with.", labels=["api", "what"]
        )
        scrubbed = CounterMetricFamily(
            "evolved_live_api_scrubbed", "Secrets taken out of answers.", labels=["api", "kind"]
        )
        for guarded in self._live.guarded():
            for what, count in sorted(guarded.counts.items()):
                calls.add_metric([guarded.name, what], count)
            for kind, count in sorted(guarded.scrubbed.items()):
                scrubbed.add_metric([guarded.name, kind], count)
        yield calls
        yield scrubbed
