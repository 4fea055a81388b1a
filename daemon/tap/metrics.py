"""The tap's figures: plain integers in the path, Prometheus only when somebody asks."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric

from daemon.figures import counter, gauge, split
from daemon.tap.recorder import Recorder
from daemon.tap.router import Router

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


def tap_metrics(counts: Counts, recorder: Recorder, router: Router, spool_age: float) -> Iterator[Metric]:
    """What the admin port shows; `spool_age`: seconds since the oldest record that is not published was written."""
    requests = {(route, str(status)): number for (route, status), number in counts.requests.items()}
    shed, rest = split(recorder.counts, "shed_")
    unreadable, kept = split(rest, "unreadable_")
    yield _overhead(counts)
    for name, about, numbers, *labels in (
        ("requests", "Requests answered.", requests, "route", "status"),
        ("errors", "What did not end as it should.", counts.errors, "reason"),
        ("not_kept", "Calls of which nothing was kept, by will.", counts.not_kept, "reason"),
        ("feedback", "Posts to /v1/feedback.", counts.feedback, "result"),
        ("kept_calls", "Calls that the recorder took.", counts.kept_calls, "tenant"),
        ("kept_bytes", "Bytes of their bodies.", counts.kept_bytes, "tenant"),
        ("spool_shed", "Records not written.", shed, "reason"),
        ("unreadable", "Calls whose response could not be read and is left out.", unreadable, "dialect"),
        ("unnamed", "Calls kept without the name of their agent: their tenant has too many.", kept.get("unnamed", 0)),
        ("upstream_stale", "Requests sent again after a stale connection.", counts.stale),
        ("spool_written", "Records on disk.", kept.get("written", 0)),
        ("spool_failures", "Failed writes.", kept.get("errors", 0)),
        ("redacted", "Records in which something was taken out.", kept.get("redacted", 0)),
        ("routes_errors", "Times that the daemon's routes could not be used.", router.errors),
        ("scribe_restarts", "Recorders that ended before the tap.", kept.get("restarts", 0)),
    ):
        yield counter(f"evolved_tap_{name}", about, numbers, *labels)
    for name, about, number in (
        ("connections", "Open agent connections.", counts.connections),
        ("in_flight", "Calls under way.", router.in_flight),
        ("spool_waiting_bytes", "Bytes of records in memory.", recorder.waiting_bytes),
        ("spool_disk_bytes", "Bytes of all segments.", recorder.progress.disk_bytes),
        ("spool_age_seconds", "Age of the oldest record that is not published.", spool_age),
        ("spool_healthy", "1 if the last write went well.", float(recorder.progress.healthy)),
    ):
        yield gauge(f"evolved_tap_{name}", about, number)
    engines = router.upstreams
    for make, name, about, of in (
        (gauge, "idle", "Idle connections.", lambda one: len(one.pool)),
        (gauge, "healthy", "1 if it answers.", lambda one: one.healthy),
        (gauge, "in_flight", "Calls under way.", lambda one: one.in_flight),
        (gauge, "closed", "1 if it gets no new trajectories for now.", lambda one: one.closed),
        (gauge, "canary_share", "Of new trajectories.", lambda one: router.share if one is router.canary else 0.0),
        (counter, "trajectories", "New ones given to it.", lambda one: one.trajectories),
    ):
        yield make(f"evolved_tap_upstream_{name}", about, {one.name: float(of(one)) for one in engines}, "engine")


def _overhead(counts: Counts) -> Metric:
    """As TensorZero defines it: time in the gateway less time waiting for the engine."""
    bounds = (*(str(bound / 1e6) for bound in BUCKETS_US), "+Inf")
    buckets = list(zip(bounds, accumulate(counts.overhead), strict=True))
    family = HistogramMetricFamily("evolved_tap_overhead_seconds", "The tap's own time on a call.")
    family.add_metric([], buckets, counts.overhead_ns / 1e9)
    return family
