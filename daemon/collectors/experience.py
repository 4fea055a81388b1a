"""Metrics of the experience pool: how many lessons there are of each kind, what became of them, what was refused."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from actors.experience.experiencer import Experiencer
from daemon.collectors.figures import counter, gauge

_TENANTS = 64
"""Tenants with figures of their own; a label for every one of thousands would drown whoever scrapes."""
OTHERS = "(others)"


def experience_figures(experiencer: Experiencer) -> Iterator[Metric]:
    yield gauge(
        "evolved_experience_lessons", "Lessons in memory.", _bounded(experiencer.pool), "tenant", "kind", "state"
    )
    yield counter(
        "evolved_experience_events", "What became of lessons and of what they are drawn from.", experiencer.counts,
        "what",
    )  # fmt: skip


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
