"""The navigator's figures for Prometheus."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.experience.navigator import Navigator

GAUGES = {
    "lessons": "Lessons that can be found.",
    "waiting": "Texts of lessons that have no vector yet: found by words alone.",
    "pinned": "Weight version whose lessons are given, -1 for those of now.",
}


class NavigatorCollector(Collector):
    """Reads the navigator's figures at each scrape."""

    def __init__(self, navigator: Navigator) -> None:
        self._navigator = navigator

    def register(self, registry: CollectorRegistry) -> None:
        """Make these figures part of `registry`."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "evolved_navigator_events", "What happened to lessons and vectors.", labels=["what"]
        )
        figures = self._navigator.figures
        for name in sorted(figures.keys() - GAUGES.keys()):
            events.add_metric((name,), figures[name])
        yield events
        for name, about in GAUGES.items():
            yield GaugeMetricFamily(f"evolved_navigator_{name}", about, figures[name])
