"""The tap's figures: plain integers in the path, Prometheus only when somebody asks."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from daemon.tap.spool import SpoolWriter


class Counts:
    """What happened since the start. Written by the event loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By (route, status that the client saw; 0 if it left before)."""
        self.errors: Counter[str] = Counter()
        """By reason: what did not end as it should."""
        self.captured = 0
        """Records offered to the spool and taken."""
        self.opted_out = 0
        self.feedback: Counter[str] = Counter()
        """By result: accepted, rejected, unavailable."""
        self.stale = 0
        """Requests sent again because a pooled connection had been closed."""
        self.connections = 0
        """Open now."""
        self.in_flight = 0
        """Calls under way now."""


class TapCollector:
    """Reads `Counts` and the spool at the moment of a scrape."""

    def __init__(self, counts: Counts, spool: SpoolWriter, idle_upstream: Callable[[], int]) -> None:
        self._counts, self._spool, self._idle_upstream = counts, spool, idle_upstream

    def register(self, registry: CollectorRegistry) -> None:
        """Make these figures part of `registry`."""
        registry.register(self)  # type: ignore[arg-type]

    def collect(self) -> Iterator[Metric]:
        counts, spool = self._counts, self._spool
        requests = CounterMetricFamily("evolved_tap_requests", "Requests answered.", labels=["route", "status"])
        for (route, status), number in counts.requests.items():
            requests.add_metric([route, str(status)], number)
        yield requests
        for name, text, label, by in (
            ("errors", "What did not end as it should.", "reason", counts.errors),
            ("feedback", "Posts to /v1/feedback.", "result", counts.feedback),
        ):
            family = CounterMetricFamily(f"evolved_tap_{name}", text, labels=[label])
            for key, number in by.items():
                family.add_metric([key], number)
            yield family
        shed = CounterMetricFamily("evolved_tap_spool_shed", "Records not written.", labels=["reason"])
        shed.add_metric(["memory"], spool.shed_memory)
        shed.add_metric(["disk"], spool.shed_disk)
        yield shed
        for name, text, value in (
            ("captured", "Records that the spool took.", counts.captured),
            ("opted_out", "Calls that asked not to be kept.", counts.opted_out),
            ("upstream_stale", "Requests sent again after a stale connection.", counts.stale),
            ("spool_written", "Records on disk.", spool.written),
            ("spool_failures", "Failed writes.", spool.errors),
        ):
            yield CounterMetricFamily(f"evolved_tap_{name}", text, value=value)
        for name, text, value in (
            ("connections", "Open agent connections.", counts.connections),
            ("in_flight", "Calls under way.", counts.in_flight),
            ("upstream_idle", "Idle engine connections.", self._idle_upstream()),
            ("spool_waiting", "Records in memory.", spool.waiting),
            ("spool_waiting_bytes", "Bytes in memory.", spool.waiting_bytes),
            ("spool_disk_bytes", "Bytes of all segments.", spool.disk_bytes),
            ("spool_healthy", "1 if the last write went well.", float(spool.healthy)),
        ):
            yield GaugeMetricFamily(f"evolved_tap_{name}", text, value=value)
