"""Live APIs on `/metrics`: how each fares, what became of its calls, what was taken out of its answers."""

from collections.abc import Iterator

from prometheus_client.core import Metric

from daemon.collectors.figures import counter, gauge
from daemon.live.registry import Live


def live_figures(live: Live) -> Iterator[Metric]:
    health = live.health()
    for name, about, read in (
        ("up", "1 if it answered when it was last asked.", lambda one: one.ok),
        ("tools", "Tools that it offers.", lambda one: one.tools),
        ("last_success_seconds", "Unix time of its last good answer, 0: none.", lambda one: one.last_success or 0.0),
    ):
        yield gauge(
            f"evolved_live_api_{name}", about, {(one.name, one.kind): read(one) for one in health}, "api", "kind"
        )
    guarded = list(live.guarded())
    calls = {(one.name, what): number for one in guarded for what, number in one.counts.items()}
    yield counter("evolved_live_api_calls", "Calls by what they came to or met with.", calls, "api", "what")
    scrubbed = {(one.name, kind): number for one in guarded for kind, number in one.scrubbed.items()}
    yield counter("evolved_live_api_scrubbed", "Secrets taken out of answers.", scrubbed, "api", "kind")
