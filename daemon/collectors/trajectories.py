"""Metrics of the assembler: how calls were linked into trajectories, and what became of them."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.trajectories.assembler import Assembler


class AssemblerCollector(Collector):
    """Reads the assembler's counts at each scrape."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        links = CounterMetricFamily(
            "evolved_links",
            "Calls in closed trajectories, by what linked them to what came before and how sure that is.",
            labels=("signal", "confidence"),
        )
        for (signal, confidence), number in sorted(self._assembler.links.items()):
            links.add_metric((signal, f"{confidence:g}"), number)
        yield links
        counts = CounterMetricFamily("evolved_assembler_records", "What the assembler met.", labels=("what",))
        for what, number in sorted(self._assembler.counts.items()):
            counts.add_metric((what,), number)
        yield counts
        yield GaugeMetricFamily(
            "evolved_assembler_open_calls", "Calls in trajectories that are not over.", self._assembler.open_calls
        )
