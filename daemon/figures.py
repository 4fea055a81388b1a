"""What somebody counts, as metrics: read from it at each scrape, never counted twice."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

T = TypeVar("T")
Numbers = float | Mapping[Any, float]
"""One, or one by the value of the label; by a tuple, where there are several labels."""


class Figures(Collector, Generic[T]):
    """The metrics that `read` finds in `source`."""

    def __init__(self, read: Callable[[T], Iterable[Metric]], source: T) -> None:
        self._read, self._source = read, source

    def collect(self) -> Iterator[Metric]:
        yield from self._read(self._source)


def counter(name: str, about: str, numbers: Numbers, *labels: str) -> Metric:
    """`numbers`, which only rise; `name` is without `_total`."""
    return _filled(CounterMetricFamily(name, about, labels=labels), numbers)


def gauge(name: str, about: str, numbers: Numbers, *labels: str) -> Metric:
    """`numbers`, which rise and fall."""
    return _filled(GaugeMetricFamily(name, about, labels=labels), numbers)


def split(counts: Mapping[str, float], prefix: str) -> tuple[dict[str, float], dict[str, float]]:
    """Those whose names begin with `prefix`, without it, and the others."""
    found = {name.removeprefix(prefix): number for name, number in counts.items() if name.startswith(prefix)}
    return found, {name: number for name, number in counts.items() if not name.startswith(prefix)}


def _filled(family: CounterMetricFamily | GaugeMetricFamily, numbers: Numbers) -> Metric:
    for values, number in sorted(numbers.items()) if isinstance(numbers, Mapping) else [((), numbers)]:
        family.add_metric((values,) if isinstance(values, str) else values, number)
    return family


def register_host(registry: CollectorRegistry, state: Path) -> None:
    """What the process takes of its machine (`process_...`), and what the disk of the state directory has left."""
    registry.register(Figures(_disk, state))
    ProcessCollector(registry=registry)


def _disk(state: Path) -> Iterator[Metric]:
    try:
        disk = shutil.disk_usage(state)
    except OSError:
        return
    yield gauge("evolved_state_disk_free_bytes", "Left where the state directory is.", disk.free)
    yield gauge("evolved_state_disk_size_bytes", "Size of that file system.", disk.total)
