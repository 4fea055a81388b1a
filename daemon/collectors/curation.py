"""Metrics of the curator: what it ordered, what waits, and why the rest never trains."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.curation.curator import Curator

GAUGES = {
    "waiting": "Trajectories that may still be trained on.",
    "waiting_groups": "Sandbox groups that could be ordered now.",
    "clusters": "Clusters of goals whose outcomes are remembered.",
    "clusters_sandbox": "Those of them that the sandbox has tasks of.",
    "clusters_fallen": "Those of them that the policy has got worse at since it changed.",
}
_DROPPED = "pool_"


class CuratorCollector(Collector):
    """Reads the curator's figures at each scrape."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily("evolved_curator_records", "What the curator did.", labels=("what",))
        pool = CounterMetricFamily(
            "evolved_curator_pool", "What became of waiting trajectories and groups, by reason.", labels=("reason",)
        )
        figures = self._curator.figures
        for name in sorted(figures.keys() - GAUGES.keys()):
            if name.startswith(_DROPPED):
                pool.add_metric((name.removeprefix(_DROPPED),), figures[name])
            else:
                counts.add_metric((name,), figures[name])
        yield counts
        yield pool
        for name, about in GAUGES.items():
            yield GaugeMetricFamily(f"evolved_curator_{name}", about, figures[name])
