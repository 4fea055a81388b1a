"""The tap's figures: plain integers in the path, Prometheus only when somebody asks."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from daemon.tap.recorder import Recorder
from daemon.tap.router import Router
from daemon.tap.routing import Routing
from daemon.tap.upstream import Upstream

BUCKETS_US = (20, 40, 60, 80, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000, 10_000, 50_000)
"""Upper bounds of the overhead histogram, microseconds."""
_MAX_TENANTS = 1000
"""Names are free text, and memory is not."""


class Counts:
    """What happened since the start. Written by the event loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """By (route, status that the client saw; 0 if it left before)."""
        self.errors: Counter[str] = Counter()
        """By reason: what did not end as it should."""
        self.kept_calls: Counter[str] = Counter()
        """By tenant: calls that the recorder took; under "" those of tenants beyond the first `_MAX_TENANTS`."""
        self.kept_bytes: Counter[str] = Counter()
        self.not_kept: Counter[str] = Counter()
        """By reason: calls of which nothing was kept, by the agent's or the operator's will."""
        self.feedback: Counter[str] = Counter()
        """By result: accepted, rejected, unavailable."""
        self.stale = 0
        """Requests sent again because a pooled connection had been closed."""
        self.connections = 0
        self.in_flight = 0
        self.overhead = [0] * (len(BUCKETS_US) + 1)
        """Calls by our own time on them, one a bucket."""
        self.overhead_ns = 0

    def keep(self, tenant: str, size: int) -> None:
        """A call of `tenant` was kept, of `size` bytes."""
        if tenant not in self.kept_calls and len(self.kept_calls) >= _MAX_TENANTS:
            tenant = ""
        self.kept_calls[tenant] += 1
        self.kept_bytes[tenant] += size

    def observe(self, nanoseconds: int) -> None:
        self.overhead_ns += nanoseconds
        self.overhead[bisect_left(BUCKETS_US, nanoseconds / 1000)] += 1


class TapCollector(Collector):
    """Reads `Counts`, the scribe and the engines at the moment of a scrape."""

    def __init__(
        self,
        counts: Counts,
        recorder: Recorder,
        router: Router,
        routing: Routing,
        spool_age: Callable[[], float],
    ) -> None:
        """
        Args:
            spool_age: seconds since the oldest record that nobody has published yet was written.
        """
        self._counts, self._recorder, self._spool_age = counts, recorder, spool_age
        self._router, self._routing = router, routing

    def collect(self) -> Iterator[Metric]:
        counts, recorder = self._counts, self._recorder
        requests = CounterMetricFamily("evolved_tap_requests", "Requests answered.", labels=["route", "status"])
        for (route, status), number in counts.requests.items():
            requests.add_metric([route, str(status)], number)
        yield requests
        yield self._overhead()
        for name, text, label, by in (
            ("errors", "What did not end as it should.", "reason", counts.errors),
            ("not_kept", "Calls of which nothing was kept, by will.", "reason", counts.not_kept),
            ("feedback", "Posts to /v1/feedback.", "result", counts.feedback),
            ("kept_calls", "Calls that the recorder took.", "tenant", counts.kept_calls),
            ("kept_bytes", "Bytes of their bodies.", "tenant", counts.kept_bytes),
            ("unreadable", "Calls whose response could not be read and is left out.", "dialect", recorder.unreadable),
        ):
            family = CounterMetricFamily(f"evolved_tap_{name}", text, labels=[label])
            for key, number in by.items():
                family.add_metric([key], number)
            yield family
        shed = CounterMetricFamily("evolved_tap_spool_shed", "Records not written.", labels=["reason"])
        shed.add_metric(["memory"], recorder.shed_memory)
        shed.add_metric(["disk"], recorder.shed_disk)
        shed.add_metric(["poison"], recorder.shed_poison)
        yield shed
        for name, text, value in (
            ("captured", "Records that the scribe took.", counts.kept_calls.total()),
            ("upstream_stale", "Requests sent again after a stale connection.", counts.stale),
            ("spool_written", "Records on disk.", recorder.written),
            ("spool_failures", "Failed writes.", recorder.errors),
            ("redacted", "Records in which something was taken out.", recorder.redacted),
            ("routes_read", "Times that the daemon's routes were taken over.", self._routing.reads),
            ("routes_errors", "Times that they could not be read, or named an unknown engine.", self._routing.errors),
            ("scribe_restarts", "Scribes that ended before the tap.", recorder.restarts),
        ):
            yield CounterMetricFamily(f"evolved_tap_{name}", text, value=value)
        for name, text, value in (
            ("connections", "Open agent connections.", counts.connections),
            ("in_flight", "Calls under way.", counts.in_flight),
            ("spool_waiting", "Records in memory.", recorder.waiting),
            ("spool_waiting_bytes", "Bytes in memory.", recorder.waiting_bytes),
            ("spool_disk_bytes", "Bytes of all segments.", recorder.progress.disk_bytes),
            ("spool_age_seconds", "Age of the oldest record that is not published.", self._spool_age()),
            ("spool_healthy", "1 if the last write went well.", float(recorder.progress.healthy)),
        ):
            yield GaugeMetricFamily(f"evolved_tap_{name}", text, value=value)
        yield from self._engines()

    def _overhead(self) -> Metric:
        """As TensorZero defines it: time in the gateway less time waiting for the engine."""
        total, buckets = 0, []
        for bound, number in zip((*BUCKETS_US, None), self._counts.overhead, strict=True):
            total += number
            buckets.append(("+Inf" if bound is None else str(bound / 1e6), total))
        family = HistogramMetricFamily("evolved_tap_overhead_seconds", "The tap's own time on a call.")
        family.add_metric([], buckets, self._counts.overhead_ns / 1e9)
        return family

    def _engines(self) -> Iterator[Metric]:
        for name, text, read in (
            ("idle", "Idle connections.", lambda one: one.idle),
            ("healthy", "1 if it answers.", lambda one: float(one.healthy)),
            ("weight", "Share of new trajectories.", lambda one: one.weight),
            ("in_flight", "Calls under way.", lambda one: one.in_flight),
            ("closed", "1 if it gets no new trajectories for now.", lambda one: float(one.closed)),
            ("canary_share", "Of new trajectories, while it is the canary.", self._share),
        ):
            family = GaugeMetricFamily(f"evolved_tap_upstream_{name}", text, labels=["engine"])
            for upstream in self._router.upstreams:
                family.add_metric([upstream.name], read(upstream))
            yield family
        given = CounterMetricFamily("evolved_tap_upstream_trajectories", "New ones given to it.", labels=["engine"])
        for upstream in self._router.upstreams:
            given.add_metric([upstream.name], upstream.trajectories)
        yield given

    def _share(self, upstream: Upstream) -> float:
        return self._router.share if upstream is self._router.canary else 0.0
