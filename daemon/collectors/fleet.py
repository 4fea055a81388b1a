"""The serving engines on `/metrics`: what each serves, whether it is paused, the canary's share, refusals."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from actors.deployment.swapper import Swapper
from daemon.collectors.figures import counter, gauge


def fleet_figures(swapper: Swapper) -> Iterator[Metric]:
    fleet = swapper.fleet
    for name, about, read in (
        ("version", "Weight version served, -1 if it does not answer.", lambda one: _known(one.version)),
        ("paused", "1 while it is paused.", lambda one: one.paused),
        ("canary_share", "Of new trajectories, while it is the canary.", lambda one: one.canary_share),
    ):
        seen = {engine: read(view) for engine, view in fleet.engines.items()}
        yield gauge(f"evolved_engine_{name}", about, seen, "engine")
    yield gauge("evolved_engine_stable_version", "What should serve.", _known(fleet.stable))
    yield gauge(
        "evolved_engine_stable_since_timestamp_seconds", "When what should serve was first served, 0 if unknown.",
        fleet.stable_since,
    )  # fmt: skip
    pauses = HistogramMetricFamily(
        "evolved_swap_paused_seconds", "Time that an engine took no new request for, by swap.", labels=["engine"]
    )
    for engine, seen in swapper.pauses.items():
        pauses.add_metric([engine], seen.cumulative(), seen.sum)
    yield pauses
    yield counter("evolved_swapper_unsigned", "Verdicts and orders without a valid signature.", swapper.unsigned)
    yield counter(
        "evolved_swapper_pins_unwritten", "Times that the versions that must stay could not be noted.", swapper.unpinned
    )
    yield counter("evolved_swapper_routes_unwritten", "Times that the tap could not be told.", swapper.untold)


def _known(version: int | None) -> int:
    return -1 if version is None else version
