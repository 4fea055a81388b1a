"""Metrics of the sentinel: the present value of every monitor, and what each cause was last answered with."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from actors.monitoring.sentinel import Sentinel
from daemon.collectors.figures import counter, gauge


def sentinel_figures(sentinel: Sentinel) -> Iterator[Metric]:
    values = {
        (monitor, name): value
        for monitor, readings in sentinel.readings().items()
        for name, value in readings.items()
    }  # fmt: skip
    yield gauge("evolved_sentinel_value", "What a monitor read when it last looked.", values, "monitor", "value")
    yield counter("evolved_sentinel_findings", "Findings acted on, by what was done.", sentinel.told, "cause", "action")
    yield gauge(
        "evolved_sentinel_last_finding_seconds",
        "When a cause was last acted on, Unix seconds, by what was done.",
        {(told.cause, told.action): told.time for told in sentinel.recent},
        "cause", "action",
    )  # fmt: skip
    yield gauge(
        "evolved_sentinel_engines_unreachable", "Engines that did not answer the last time.", len(sentinel.unreachable)
    )
