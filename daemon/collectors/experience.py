"""Metrics of the experience pool: how many lessons there are of each kind, what became of them, what was refused."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.experience.experiencer import Experiencer

_TENANTS = 64
"""Tenants with figures of their own; a label for every one of thousands would drown whoever scrapes."""
OTHERS = "(others)"


class ExperienceCollector(Collector):
    """Reads the experiencer's figures at each scrape."""

    def __init__(self, experiencer: Experiencer) -> None:
        self._experiencer = experiencer

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        lessons = GaugeMetricFamily(
            "evolved_experience_lessons", "Lessons in memory.", labels=("tenant", "kind", "state")
        )
        for labels, number in sorted(_bounded(self._experiencer.pool).items()):
            lessons.add_metric(labels, number)
        yield lessons
        counts = CounterMetricFamily(
            "evolved_experience_events", "What became of lessons and of what they are drawn from.", labels=("what",)
        )
        for what, number in sorted(self._experiencer.counts.items()):
            counts.add_metric((what,), number)
        yield counts


def _bounded(pool: Mapping[tuple[str, str, str], int]) -> Counter[tuple[str, str, str]]:
    """The figures of the tenants with most lessons, and of all others together."""
    held = Counter[str]()
    for (tenant, _, _), number in pool.items():
        held[tenant] += number
    named = {tenant for tenant, _ in held.most_common(_TENANTS)}
    shown = Counter[tuple[str, str, str]]()
    for (tenant, kind, state), number in pool.items():
        shown[tenant if tenant in named else OTHERS, kind, state] += number
    return shown
