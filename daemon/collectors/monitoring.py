"""Metrics of the sentinel: the present value of every monitor, how the versions fared that people compare, and what
each cause was last answered with."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from actors.monitoring.sentinel import Sentinel
from actors.statistics.intervals import wilson
from daemon.collectors.figures import counter, gauge


def sentinel_figures(sentinel: Sentinel) -> Iterator[Metric]:
    values = {
        (monitor, name): value
        for monitor, readings in sentinel.readings().items()
        for name, value in readings.items()
    }  # fmt: skip
    yield gauge("evolved_sentinel_value", "What a monitor read when it last looked.", values, "monitor", "value")
    # By place, not by number: a version a series would be one more each hour, for ever.
    versions = sentinel.versions()
    bounds = {place: wilson(one.solved, one.outcomes) for place, one in versions.items()}
    for name, about, numbers in (
        ("number", "Weight version that serves, that served before it, and that served first.",
         {place: one.version for place, one in versions.items()}),
        ("outcomes", "Its newest reported outcomes, which its success is of.",
         {place: one.outcomes for place, one in versions.items()}),
        ("success", "Share of successes among them.",
         {place: one.solved / one.outcomes for place, one in versions.items()}),
        ("success_low", "Lower limit of that, Wilson, 95 %.", {place: low for place, (low, _) in bounds.items()}),
        ("success_high", "Upper limit of that.", {place: high for place, (_, high) in bounds.items()}),
    ):  # fmt: skip
        yield gauge(f"evolved_version_{name}", about, numbers, "place")
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
