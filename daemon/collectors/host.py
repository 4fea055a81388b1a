"""What a process takes of its machine (`process_...`), and what the state directory's disk has left, on `/metrics`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from daemon.collectors.figures import Figures, gauge


def register_host(registry: CollectorRegistry, state: Path) -> None:
    """Make these figures part of `registry`; `state`: the state directory."""
    registry.register(Figures(disk_figures, state))
    ProcessCollector(registry=registry)


def disk_figures(state: Path) -> Iterator[Metric]:
    try:
        disk = shutil.disk_usage(state)
    except OSError:
        return
    yield gauge("evolved_state_disk_free_bytes", "Left where the state directory is.", disk.free)
    yield gauge("evolved_state_disk_size_bytes", "Size of that file system.", disk.total)
