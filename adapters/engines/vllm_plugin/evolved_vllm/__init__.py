"""A vLLM plug-in: checked hot swaps, the last good checkpoint kept, and a digest of what is loaded.

vLLM calls `register` in each of its processes (entry point group `vllm.general_plugins`). It hangs the methods of
`evolved_vllm.rpc` on vLLM's worker class, where `/collective_rpc` finds them, so that no flag is needed. Imports
nothing but vLLM's own dependencies and can be installed by itself.

Whoever wants to know whether the plug-in is there reads `/metrics`: to call a method that a worker does not have would
leave a traceback in the server's log, and costs the caller its connection.
"""

import os
import signal
import threading
import time

__version__ = "0.1.0"
LAUNCHER = "EVOLVED_LAUNCHER"
"""Variable with the process id of the `evolved engine` that started the server."""
_GRACE = 30.0
"""Seconds that the server has to end after its launcher, as when the launcher stops it."""
METRIC = "evolved_plugin"
"""Shown on /metrics, with the version as its label. vLLM clears away other people's metrics that have its own name."""


def register() -> None:
    """Give the workers of this process the methods of `evolved_vllm.rpc`; doing it twice does no harm."""
    from vllm.v1.worker.worker_base import WorkerBase  # pyright: ignore[reportMissingImports]

    from .rpc import METHODS

    for name, method in METHODS.items():
        setattr(WorkerBase, name, method)
    _announce()
    launcher = int(os.environ.get(LAUNCHER) or 0)
    if launcher and os.getppid() == launcher:
        threading.Thread(target=_outlive, args=(launcher,), name="evolved-launcher", daemon=True).start()


def _outlive(launcher: int) -> None:
    """End this server, its engine core and workers a while after a launcher that was killed.

    The kernel asks the server to stop then (prctl(2), PR_SET_PDEATHSIG); but it waits for its open requests, and an
    engine that hangs never answers them.
    """
    while os.getppid() == launcher:
        time.sleep(1.0)
    time.sleep(_GRACE)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _announce() -> None:
    from prometheus_client import REGISTRY, Gauge

    if METRIC not in REGISTRY._names_to_collectors:
        gauge = Gauge(METRIC, "Plug-in evolved-vllm.", ["version"], multiprocess_mode="max")
        gauge.labels(__version__).set(1)
