"""What a process takes of its machine, and what the machine has left, on `/metrics`: for who runs no node exporter.

Read from /proc and the file system at each scrape; what a system does not tell is left out.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class HostCollector(Collector):
    """Load, memory, and the file system that `state` is on."""

    def __init__(self, state: Path, meminfo: Path = Path("/proc/meminfo")) -> None:
        """
        Args:
            state: the state directory.
            meminfo: where Linux tells of its memory.
        """
        self._state, self._meminfo = state, meminfo

    def register(self, registry: CollectorRegistry) -> None:
        """Make these figures, and the process's own (`process_...`), part of `registry`."""
        registry.register(self)
        ProcessCollector(registry=registry)

    def collect(self) -> Iterator[Metric]:
        for name, text, value in (
            ("cores", "Processors that this process may run on.", self._cores()),
            ("load1", "Processes that ran or wanted to, over the last minute.", self._load()),
            ("memory_available_bytes", "Memory that can be had without swapping.", self._memory()),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"evolved_host_{name}", text, value=value)
        try:
            disk = shutil.disk_usage(self._state)
        except OSError:
            return
        yield GaugeMetricFamily("evolved_state_disk_free_bytes", "Left where the state directory is.", value=disk.free)
        yield GaugeMetricFamily("evolved_state_disk_size_bytes", "Size of that file system.", value=disk.total)

    def _cores(self) -> float | None:
        return float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None

    def _load(self) -> float | None:
        try:
            return os.getloadavg()[0]
        except OSError:
            return None

    def _memory(self) -> float | None:
        try:
            lines = self._meminfo.read_text().splitlines()
        except OSError:
            return None
        found = next((line.split() for line in lines if line.startswith("MemAvailable:")), None)
        return float(found[1]) * 1024 if found else None
