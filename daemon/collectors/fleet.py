"""The serving engines on `/metrics`: what each serves, whether it is paused, the canary's share, refusals."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.deployment.swapper import Swapper


class FleetCollector(Collector):
    """Reads the swapper at the moment of a scrape."""

    def __init__(self, swapper: Swapper) -> None:
        self._swapper = swapper

    def register(self, registry: CollectorRegistry) -> None:
        """Make these figures part of `registry`."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        fleet = self._swapper.fleet
        for name, text, read in (
            ("version", "Weight version served, -1 if it does not answer.", lambda one: _known(one.version)),
            ("paused", "1 while it is paused.", lambda one: float(one.paused)),
            ("canary_share", "Of new trajectories, while it is the canary.", lambda one: one.canary_share),
        ):
            family = GaugeMetricFamily(f"evolved_engine_{name}", text, labels=["engine"])
            for engine, view in fleet.engines.items():
                family.add_metric([engine], read(view))
            yield family
        yield GaugeMetricFamily("evolved_engine_stable_version", "What should serve.", value=_known(fleet.stable))
        yield GaugeMetricFamily(
            "evolved_engine_stable_since_timestamp_seconds", "When what should serve was first served, 0 if unknown.",
            value=fleet.stable_since,
        )  # fmt: skip
        pauses = HistogramMetricFamily(
            "evolved_swap_paused_seconds", "Time that an engine took no new request for, by swap.", labels=["engine"]
        )
        for engine, seen in self._swapper.pauses.items():
            pauses.add_metric([engine], seen.cumulative(), seen.sum)
        yield pauses
        yield CounterMetricFamily(
            "evolved_swapper_unsigned", "Verdicts and orders without a valid signature.", value=self._swapper.unsigned
        )
        yield CounterMetricFamily(
            "evolved_swapper_routes_unwritten", "Times that the tap could not be told.", value=self._swapper.untold
        )


def _known(version: int | None) -> float:
    return -1.0 if version is None else float(version)
