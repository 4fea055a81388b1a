"""Metrics of the sentinel: the present value of every monitor, and what each cause was last answered with."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.monitoring.sentinel import Sentinel


class SentinelCollector(Collector):
    """Reads the sentinel at each scrape."""

    def __init__(self, sentinel: Sentinel) -> None:
        self._sentinel = sentinel

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        values = GaugeMetricFamily(
            "evolved_sentinel_value",
            "What a monitor read when it last looked.",
            labels=("monitor", "value"),
        )
        for monitor, readings in self._sentinel.readings().items():
            for name, value in readings.items():
                values.add_metric((monitor, name), value)
        yield values
        found = CounterMetricFamily(
            "evolved_sentinel_findings", "Findings acted on, by what was done.", labels=("cause", "action")
        )
        for (cause, action), number in sorted(self._sentinel.told.items()):
            found.add_metric((cause, action), number)
        yield found
        last = GaugeMetricFamily(
            "evolved_sentinel_last_finding_seconds",
            "When a cause was last acted on, Unix seconds, by what was done.",
            labels=("cause", "action"),
        )
        for (cause, action), time in {(told.cause, told.action): told.time for told in self._sentinel.recent}.items():
            last.add_metric((cause, action), time)
        yield last
        yield GaugeMetricFamily(
            "evolved_sentinel_engines_unreachable",
            "Engines that did not answer the last time.",
            len(self._sentinel.unreachable),
        )
